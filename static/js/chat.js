// The conversation: questions, answers, and the one request that may be under way. Holds no elements; the view and the
// drawer listen to "conversation" (another one is shown), "message" (one changed), "finished" and "state".
import { newId, median } from "./ui.js";
import * as settings from "./settings.js";
import * as store from "./store.js";

const SAVE_EVERY = 500; // ms between saves while an answer grows
const SPEED_WINDOW = 120; // ms that one point of the speed line covers at least
const DROP_TO = 0.6; // part of the context that is filled again after the oldest turns were left out
const DROP_TRIES = 8;

const ended = { cancelled: "stopped" }; // error code -> status of the answer, else "error"

export class Chat {
  conversation = fresh();
  running = null; // {id, sequence (the engine's name for it), answer, engine, began, firstAt, tokens, speeds, stopping}
  speeds = []; // tokens/s of the answer under way, or of the last one
  kept = true; // whether storage keeps the conversation
  #session;
  #listeners = { conversation: [], message: [], finished: [], state: [] };
  #saveTimer = 0;

  constructor(session) {
    this.#session = session;
    session.on("ready", () => this.#runWaiting());
    // A page that goes away keeps what was written so far.
    addEventListener("pagehide", () => this.#saveNow());
    document.addEventListener("visibilitychange", () => document.hidden && this.#saveNow());
  }

  on(event, fn) {
    this.#listeners[event].push(fn);
  }

  get messages() {
    return this.conversation.messages;
  }

  get waiting() {
    const last = this.messages.at(-1);
    return last?.status === "waiting" ? last : null;
  }

  // contextUsed is the number of tokens that the last answer left in the context, by the engine's own count.
  get contextUsed() {
    const last = this.messages.findLast((message) => message.role === "assistant" && message.total);
    return last?.total ?? 0;
  }

  async restore() {
    const id = store.current();
    const saved = id && (await store.load(id));
    if (!saved || saved.version !== 1 || !Array.isArray(saved.messages) || this.messages.length) return;
    for (const message of saved.messages) if (message.status === "running" || message.status === "waiting") message.status = "interrupted";
    this.conversation = saved;
    this.#emit("conversation");
    this.#emit("state");
  }

  startNew() {
    this.stop();
    this.#saveNow();
    this.conversation = fresh();
    store.setCurrent(this.conversation.id);
    this.#emit("conversation");
    this.#emit("state");
  }

  // ask adds a question and answers it, now or when the engine is ready. With replace, the question and all that follows
  // it are replaced.
  ask(text, replace) {
    if (this.running || this.waiting) return;
    if (replace) this.messages.splice(this.messages.indexOf(replace));
    const { conversation } = this;
    if (!conversation.messages.length) {
      conversation.title = text.replace(/\s+/g, " ").slice(0, 80);
      conversation.skip = 0;
      store.setCurrent(conversation.id);
    }
    conversation.skip = Math.min(conversation.skip, conversation.messages.length);
    const answer = { id: newId("a"), role: "assistant", content: "", created: Date.now(), status: "waiting" };
    conversation.messages.push({ id: newId("q"), role: "user", content: text, created: Date.now() }, answer);
    this.#emit("conversation");
    this.#start(answer);
  }

  // regenerate makes the last answer again.
  regenerate(answer) {
    if (this.running || this.waiting || answer !== this.messages.at(-1)) return;
    Object.keys(answer).forEach((key) => ["id", "role", "created"].includes(key) || delete answer[key]);
    Object.assign(answer, { content: "", status: "waiting" });
    this.#start(answer);
  }

  // dropOldest answers again without as many of the oldest turns as it takes; the conversation shows where it cuts.
  dropOldest(answer) {
    if (!this.#drop(answer)) return this.#emit("message", answer);
    this.regenerate(answer);
    answer.dropping = 1;
  }

  stop() {
    if (this.running && !this.running.stopping) {
      this.running.stopping = true;
      this.running.engine.cancel(this.running.id);
    } else if (this.waiting) {
      const answer = this.waiting;
      answer.status = "stopped";
      this.#finished(answer);
    }
    this.#emit("state");
  }

  // body is the request for an answer, or without one for all that was said.
  body(answer, stream = true) {
    const { skip, messages } = this.conversation;
    const before = answer ? messages.indexOf(answer) : messages.length;
    const turns = messages.slice(skip, before).filter((message) => message.content);
    const system = settings.get("system");
    const body = {
      model: this.#session.info?.model ?? this.#session.modelName,
      messages: [...(system ? [{ role: "system", content: system }] : []), ...turns.map(({ role, content }) => ({ role, content }))],
      ...settings.samplingParams(),
    };
    return stream ? { ...body, stream: true, stream_options: { include_usage: true } } : body;
  }

  #start(answer) {
    const { phase } = this.#session;
    if (phase === "ready") this.#run(answer);
    else if (phase === "idle") this.#session.load();
    this.#save();
    this.#emit("message", answer);
    this.#emit("state");
  }

  #runWaiting() {
    if (this.waiting && !this.running) this.#run(this.waiting);
  }

  #run(answer) {
    const { engine, place, info } = this.#session;
    const run = { id: newId("r"), answer, engine, began: performance.now(), firstAt: 0, tokens: 0, speeds: [], stopping: false };
    run.point = { at: run.began, tokens: 0 };
    this.running = run;
    this.speeds = run.speeds;
    Object.assign(answer, { status: "running", model: info.model, place, adapter: info.adapter?.name, skipped: this.conversation.skip });
    const body = this.body(answer);
    if (info.has_chat_template === false) {
      body.prompt = body.messages.map((message) => message.content).join("\n");
      delete body.messages;
    }
    engine.generate(run.id, body.messages ? "chat.completions" : "completions", body, {
      chunk: (data) => this.#chunk(run, data),
      end: (error) => this.#end(run, error),
    });
    this.#emit("message", answer);
    this.#emit("state");
  }

  #chunk(run, data) {
    const { answer } = run;
    run.sequence ??= data.id;
    const choice = data.choices?.[0];
    const text = choice?.delta?.content ?? choice?.text ?? "";
    const now = performance.now();
    const tokens = data.pagelight?.token_ids?.length ?? (text ? 1 : 0);
    if (text || tokens) {
      if (!run.firstAt) {
        run.firstAt = now;
        run.point.at = now;
        answer.first = now - run.began;
      } else {
        run.point.tokens += tokens;
      }
      run.tokens += tokens;
      if (now - run.point.at >= SPEED_WINDOW) {
        run.speeds.push((run.point.tokens * 1000) / (now - run.point.at));
        run.point = { at: now, tokens: 0 };
      }
      answer.content += text;
      answer.tokens = run.tokens;
      answer.speed = run.speeds.length ? median(run.speeds) : 0;
    }
    if (choice?.finish_reason) answer.finish = choice.finish_reason;
    const timing = data.pagelight?.timing;
    if (timing) answer.timing = timing;
    if (data.usage) {
      answer.tokens = data.usage.completion_tokens;
      answer.total = data.usage.total_tokens;
    }
    this.#save();
    this.#emit("message", answer);
  }

  #end(run, error) {
    const { answer } = run;
    if (this.running !== run) return;
    this.running = null;
    const decode = answer.timing?.decode_ms;
    if (decode > 0 && answer.tokens > 1) answer.speed = ((answer.tokens - 1) * 1000) / decode;
    else if (run.firstAt && run.tokens > 1) answer.speed = ((run.tokens - 1) * 1000) / Math.max(1, performance.now() - run.firstAt);
    const max = this.#session.info?.max_model_len;
    if (answer.finish === "length" && max && answer.total >= max) answer.finish = "context";
    answer.status = error ? (ended[error.code] ?? "error") : "done";
    if (answer.status === "error") answer.error = describe(error);
    const tries = answer.dropping;
    delete answer.dropping;
    if (answer.error?.code === "context_length_exceeded" && tries && tries < DROP_TRIES && this.#drop(answer)) {
      this.regenerate(answer);
      answer.dropping = tries + 1;
      return;
    }
    this.#finished(answer);
  }

  #finished(answer) {
    this.#saveNow();
    this.#emit("message", answer);
    this.#emit("finished", answer);
    this.#emit("state");
  }

  // drop moves the cut so far that, by the length of the texts, the rest fits. False when only the question is left.
  #drop(answer) {
    const { conversation } = this;
    const at = conversation.messages.indexOf(answer);
    const turns = conversation.messages.slice(0, at);
    const size = (from) => turns.slice(from).reduce((sum, message) => sum + message.content.length, 0);
    const { used, max } = answer.error ?? {};
    const room = size(conversation.skip) * (used && max ? Math.min(1, (max * DROP_TO) / used) : DROP_TO);
    let cut = conversation.skip;
    do {
      cut++;
      while (cut < at && turns[cut].role !== "user") cut++;
      if (cut >= at) {
        answer.error = { ...answer.error, code: "question_too_long" };
        return false;
      }
    } while (size(cut) > room && cut < at - 1);
    conversation.skip = cut;
    this.#emit("conversation");
    return true;
  }

  #save() {
    this.conversation.updated = Date.now();
    this.#saveTimer ||= setTimeout(() => this.#saveNow(), SAVE_EVERY);
  }

  async #saveNow() {
    clearTimeout(this.#saveTimer);
    this.#saveTimer = 0;
    if (!this.messages.length) return;
    const kept = await store.save(this.conversation);
    if (kept === this.kept) return;
    this.kept = kept;
    this.#emit("state");
  }

  #emit(event, value) {
    for (const fn of this.#listeners[event]) fn(value);
  }
}

function fresh() {
  const now = Date.now();
  return { id: newId("c"), version: 1, title: "", created: now, updated: now, skip: 0, messages: [] };
}

// describe keeps of an error what the answer's box shows. The counts of a full context are in the message.
function describe(error) {
  const known = { code: error.code, message: error.message };
  if (error.code !== "context_length_exceeded") return known;
  const max = /context length is (\d+)/.exec(error.message);
  const used = /prompt has (\d+)|but (\d+) were requested/.exec(error.message);
  if (max && used) Object.assign(known, { max: Number(max[1]), used: Number(used[1] ?? used[2]) });
  return known;
}
