// The conversation as elements. Messages are patched, not made again: at most one update a frame, and only of those that
// changed. The reader's place is kept unless it is at the end.
import { $, el, icon, button, copy, count, rate, duration, t, onLanguage, translate } from "./ui.js";
import { Markdown } from "./markdown.js";

const END = 40; // px from the end that still count as the end
const FACTS_EVERY = 250; // ms between changes of the numbers of a running answer

export class MessageList {
  #root = $("#messages");
  #scroller = $("#scroller");
  #jump = $("#jump");
  #views = new Map(); // message -> {node, markdown, ...}
  #dirty = new Set();
  #frame = 0;
  #atEnd = true;
  #chat;
  #actions;

  // actions: edit(message), newChat()
  constructor(chat, actions) {
    this.#chat = chat;
    this.#actions = actions;
    this.#scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    new ResizeObserver(() => this.#follow()).observe(this.#scroller);
    this.#jump.addEventListener("click", () => {
      this.toEnd();
      $("#input").focus();
    });
    chat.on("conversation", () => this.#rebuild());
    chat.on("message", (message) => this.#touch(message));
    chat.on("state", () => this.#touch(...chat.messages.slice(-2)));
    onLanguage(() => this.#rebuild());
  }

  toEnd() {
    this.#atEnd = true;
    this.#follow();
  }

  #rebuild() {
    const { messages, skip } = this.#chat.conversation;
    const kept = new Map(messages.map((message) => [message, this.#views.get(message) ?? this.#make(message)]));
    for (const [message, view] of this.#views) if (!kept.has(message)) view.node.remove();
    this.#views = kept;
    const nodes = [...kept.values()].map((view) => view.node);
    if (skip > 0 && skip < nodes.length) nodes.splice(skip, 0, el("p", { class: "cut", "data-t": "skippedLine" }));
    this.#root.replaceChildren(...nodes);
    translate(this.#root);
    this.#touch(...messages);
    this.#atEnd = true;
  }

  #touch(...messages) {
    for (const message of messages) this.#dirty.add(message);
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      for (const message of this.#dirty) if (this.#views.has(message)) this.#update(message, this.#views.get(message));
      this.#dirty.clear();
      this.#follow();
    });
  }

  #follow() {
    if (this.#atEnd && this.#views.size) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#showJump();
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    this.#atEnd = scrollHeight - scrollTop - clientHeight < END;
    this.#showJump();
  }

  #showJump() {
    if (this.#jump.hidden !== this.#atEnd) this.#jump.hidden = this.#atEnd;
  }

  #make(message) {
    return message.role === "user" ? this.#makeQuestion(message) : this.#makeAnswer(message);
  }

  #makeQuestion(message) {
    const copies = action("copy", () => copy(message.content, copies));
    const edit = action("edit", () => this.#actions.edit(message));
    const node = el("article", { class: "message user", "data-testid": "message-user", "data-id": message.id },
      el("h2", { class: "sr-only", "data-t": "you" }),
      el("div", { class: "bubble", "data-testid": "message-text", text: message.content }),
      el("div", { class: "actions" }, copies, edit));
    return { node, edit };
  }

  #makeAnswer(message) {
    const text = el("div", { class: "text", "data-testid": "message-text" });
    const note = el("p", { class: "note", hidden: true });
    const box = el("div", { class: "slot" });
    const facts = el("p", { class: "facts", "data-testid": "message-facts" });
    const copies = action("copy", () => copy(message.content, copies));
    const again = action("regenerate", () => this.#chat.regenerate(message));
    const node = el("article", { class: "message assistant", "data-testid": "message-assistant", "data-id": message.id, "data-status": message.status },
      el("h2", { class: "sr-only", "data-t": "assistant" }),
      text, note, box,
      el("footer", {}, el("div", { class: "actions" }, copies, again), facts));
    return { node, markdown: new Markdown(text), shown: null, note, box, facts, copies, again };
  }

  #update(message, view) {
    const busy = Boolean(this.#chat.running || this.#chat.waiting);
    if (message.role === "user") {
      view.edit.hidden = busy;
      return;
    }
    const open = message.status === "running" || message.status === "waiting";
    const shown = `${open}:${message.content.length}`;
    if (view.shown !== shown) view.markdown.set(message.content, !open);
    view.shown = shown;
    view.node.dataset.status = message.status;
    const note = message.status === "waiting" ? t("waitingEngine") : message.status === "running" && !message.content ? t("thinking") : "";
    if (view.note.textContent !== note) view.note.textContent = note;
    view.note.hidden = !note;
    const now = performance.now();
    if (!open || !(now - view.factsAt < FACTS_EVERY)) {
      view.facts.textContent = facts(message);
      view.factsAt = now;
    }
    view.copies.hidden = open || !message.content;
    view.again.hidden = busy || message !== this.#chat.messages.at(-1);
    // A lost device has its box above the conversation, with the way to go on.
    const failed = message.status === "error" && message === this.#chat.messages.at(-1) && message.error.code !== "device_lost";
    const error = failed ? message.error : null;
    if (view.error !== error || view.lang !== document.documentElement.lang) view.box.replaceChildren(...(error ? [this.#errorBox(message, error)] : []));
    view.error = error;
    view.lang = document.documentElement.lang;
  }

  #errorBox(message, error) {
    const chat = this.#chat;
    const actions = this.#actions;
    const newChat = ["newChat", actions.newChat];
    const again = ["regenerate", () => chat.regenerate(message)];
    const [kind, text, ...offers] = {
      context_length_exceeded: () => [
        "context-full",
        error.used ? t("contextFull", { used: count(error.used), max: count(error.max) }) : t("contextFullUnknown"),
        ["dropOldest", () => chat.dropOldest(message)], newChat,
      ],
      question_too_long: () => ["context-full", t("contextAlone"), newChat],
      server_gone: () => ["request-lost", t("requestGone"), again],
      worker_silent: () => ["request-lost", t("requestSilent"), again],
    }[error.code]?.() ?? ["request-failed", t("requestFailed", { message: error.message }), again];
    return stateBox(kind, "problem", text, offers.map(([key, run]) => ({ text: t(key), run })));
  }
}

const action = (key, run) => {
  const node = button({ class: "quiet", "data-t-label": key, onclick: run }, key);
  return node;
};

// stateBox is how every state of the page looks: what happened, and what to do next.
export function stateBox(kind, severity, text, offers, dismiss) {
  return el("div", { class: `state ${severity}`, "data-testid": "state-banner", "data-kind": kind },
    icon(severity === "problem" ? "alert" : "info"),
    el("p", { text }),
    (offers.length || dismiss) && el("div", { class: "offers" },
      ...offers.map((offer, i) => button({ class: i === 0 ? "primary" : "", onclick: (event) => offer.run(event.currentTarget) }, null, offer.text)),
      dismiss && button({ class: "", onclick: dismiss }, null, t("dismiss"))));
}

// facts is the quiet line under an answer; it has only what was measured.
function facts(message) {
  const parts = [];
  if (message.tokens) parts.push(t("mTokens", { n: count(message.tokens) }));
  if (message.speed) parts.push(t("mSpeed", { n: rate(message.speed) }));
  if (message.first) parts.push(t("mFirst", { n: duration(message.first) }));
  if (message.status === "waiting") return "";
  if (message.place) {
    const place = t(message.place === "tab" ? "mTab" : "mServer");
    parts.push(message.adapter ? t("mWhere", { place, adapter: message.adapter }) : place);
  }
  const end = {
    done: { length: "mLength", context: "mContext" }[message.finish] ?? "mStop",
    stopped: "mStopped", interrupted: "mInterrupted", error: "mError",
  }[message.status];
  if (end) parts.push(t(end));
  if (message.skipped) parts.push(t("mSkipped", { n: count(message.skipped) }));
  return parts.join(" · ");
}
