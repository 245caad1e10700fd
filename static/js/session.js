// The session is where the page's engine is: which place, which model, how far a load is, what went wrong. It holds no
// elements; whoever shows it listens to "change" (anything), "ready" and "progress" (at most as often as messages come).
import { TabEngine, ServerEngine, probeServer, fetchJSON } from "./channel.js";
import { nameOfFiles, cachedUnder, bitsOf } from "./open.js";
import * as settings from "./settings.js";

const RETRY_MAX = 30; // s
const SILENCES_MAX = 3; // a worker that falls silent so often without ever getting ready is not started again
const ADDRESSES_MAX = 20; // models at addresses that are remembered
const CANCEL_GRACE = 2000; // ms that a worker gets to stop loading by itself

export class Session {
  place = "tab";
  phase = "loading"; // loading | ready | error | idle
  step = "checking"; // while loading: checking, connecting, starting or a phase of the protocol
  progress = null; // {phase, done, total, name, left (ms, or null)}
  error = null; // EngineError of the last load
  info = null; // engine.Info of the engine in use
  adapter = null; // the worker's answer about this tab's adapter
  models = []; // of this tab
  model = null; // the one of this tab's models that is chosen
  server = { models: null, reason: "none", retryIn: null, trying: false };
  waterfall = []; // {phase, start, end, bytes} in ms since the load began; kept after it
  losses = 0;
  silentFor = 0; // s that a worker was silent before it was started again; 0 when none was or the reader knows

  #tab = new TabEngine();
  #tabInfo = null;
  #socket = new ServerEngine();
  #listeners = { change: [], ready: [], progress: [] };
  #loading = null; // {id, cancelled} of the load under way
  #retry = 0;
  #attempts = 0;
  #silences = 0; // since the engine was last ready

  constructor() {
    this.#tab.on("lost", (message) => this.#tabGone("device_lost", message));
    this.#tab.on("broken", (message) => this.#tabGone("worker_broken", message));
    this.#tab.on("silent", (seconds) => {
      this.#tabInfo = null;
      this.#loading = null;
      if (++this.#silences >= SILENCES_MAX) return this.#failed({ code: "worker_silent", message: `no answer for ${seconds} s`, detail: {} });
      this.silentFor = seconds;
      this.load();
    });
    this.#socket.on("open", () => this.#serverOpen());
    this.#socket.on("gone", () => this.#serverGone());
  }

  on(event, fn) {
    this.#listeners[event].push(fn);
  }

  get engine() {
    return this.place === "tab" ? this.#tab : this.#socket;
  }

  get modelName() {
    if (this.place === "tab") return this.model?.name ?? this.#tabInfo?.model ?? "";
    return this.info?.model ?? this.server.models?.[0]?.id ?? "";
  }

  // start finds out what is offered and goes to the place chosen last, else to this tab.
  async start() {
    const [list, server] = await Promise.all([fetchJSON("models/index.json").catch(() => null), probeServer()]);
    this.models = (Array.isArray(list?.models) ? list.models : []).filter((m) => m && typeof m.id === "string" && typeof m.name === "string");
    this.models.push(...remembered());
    this.model = this.models.find((m) => m.id === settings.get("model")) ?? this.models[0] ?? null;
    Object.assign(this.server, server);
    const wanted = settings.get("place") ?? (this.model ? "tab" : "server");
    await this.use(wanted === "server" && this.server.models ? "server" : "tab");
  }

  // use changes the place. The other engine stays as it is, so that going back costs nothing.
  async use(place) {
    this.place = place;
    this.error = null;
    if (place === "server") {
      this.phase = "loading";
      this.step = "connecting";
      this.info = null;
      this.#change();
      this.#socket.connect();
      return;
    }
    this.#stopRetrying();
    this.#socket.close();
    if (this.#tabInfo) return this.#ready(this.#tabInfo);
    if (this.#loading) {
      this.phase = "loading";
      return this.#change();
    }
    if (!this.model) return this.#failed({ code: "no_models", message: "" });
    if (navigator.connection?.saveData) {
      this.phase = "idle";
      this.info = null;
      this.#change();
      this.#detect();
      return;
    }
    await this.load();
  }

  async choose(model) {
    this.model = model;
    settings.set("model", model.id);
    this.#tabInfo = null;
    if (this.place === "tab") return this.load();
    if (this.#loading) await this.#abandon(); // of another model
    return this.use("tab");
  }

  // openFiles loads a model from files of this machine: [{path, file}]. They are gone with the page.
  openFiles(files) {
    const name = nameOfFiles(files);
    const bytes = files.reduce((sum, { path, file }) => sum + (/\.(gguf|safetensors|bin)$/i.test(path) ? file.size : 0), 0);
    return this.#chooseOwn({ id: `files:${name}`, name: name.replace(/\.gguf$/i, ""), title: name, kind: "files", files, bytes });
  }

  // openAddress loads a model from where modelAt says. It is remembered once it could be loaded.
  openAddress(model) {
    return this.#chooseOwn(this.models.find((m) => m.id === model.id) ?? model);
  }

  #chooseOwn(model) {
    this.models = [...this.models.filter((m) => m.id !== model.id), model];
    settings.set("place", "tab");
    return this.choose(model);
  }

  // forget takes a model at an address out of the list, and what the browser keeps of it.
  async forget(model) {
    this.models = this.models.filter((m) => m !== model);
    this.#remember();
    this.#change();
    await this.#tab.ask({ type: "forget", url: cachedUnder(model) }).catch(() => {});
  }

  #remember() {
    const keep = this.models.filter((m) => m.loaded).slice(-ADDRESSES_MAX);
    settings.set("addresses", keep.length ? keep.map(({ id, name, kind, url, site, repo, revision, bytes, bits }) => ({ id, name, kind, url, site, repo, revision, bytes, bits })) : undefined);
  }

  // load (re)loads the chosen model in this tab. device "cpu" asks for the CPU engine.
  async load(device = "auto") {
    if (this.#loading) await this.#abandon();
    if (!this.model) return;
    const model = this.model;
    const load = { id: "", cancelled: false };
    this.#loading = load;
    this.#tabInfo = null;
    this.waterfall = [];
    this.#show("loading", { step: "checking", progress: null, error: null, info: null });
    try {
      await this.#detect();
      if (this.#loading !== load) return;
      this.#show("loading", { step: "starting" });
      const began = performance.now();
      this.waterfall = [{ phase: "start", start: 0, end: 0, bytes: 0 }];
      const answer = this.#tab.load(
        forWorker(model),
        {
          device,
          kv: "f16",
          quant: model.kind === "synthetic" ? "q4" : "none", // 4 bits hold it without loss, in a third of the memory
          gpu_memory: (settings.get("gpu_memory") ?? 0) * 2 ** 20,
          max_model_len: settings.get("max_model_len") ?? 0,
          tuning: settings.get("tuning") ?? "auto",
        },
        (message) => this.#progress(message, began),
      );
      load.id = answer.id;
      const { info } = await answer;
      if (this.#loading !== load) return;
      this.#loading = null;
      this.waterfall.at(-1).end = performance.now() - began;
      this.#tabInfo = info;
      this.#silences = 0;
      if (isOwn(model)) this.#loaded(model, info);
      if (this.place === "tab") this.#ready(info);
    } catch (error) {
      if (this.#loading !== load) return;
      this.#loading = null;
      if (["bad_model", "not_a_model"].includes(error.code)) this.models = this.models.filter((m) => m !== model || m.loaded);
      if (this.place !== "tab") return;
      if (error.code === "cancelled") this.#show("idle", { progress: null });
      else this.#failed(error);
    }
  }

  // loaded notes what is known of a model of the reader's own only now.
  #loaded(model, info) {
    model.bits = bitsOf(info.weights);
    if (model.kind === "files") return;
    model.bytes = this.waterfall.reduce((most, row) => Math.max(most, row.phase === "download" ? row.bytes : 0), model.bytes ?? 0);
    model.loaded = true;
    this.#remember();
  }

  // cancelLoad asks the worker to stop loading, and ends the worker when it does not.
  async cancelLoad() {
    if (!this.#loading) return;
    await this.#abandon();
    this.#show("idle", { progress: null });
  }

  async #abandon() {
    const load = this.#loading;
    this.#loading = null;
    if (load.id) this.#tab.cancel(load.id);
    const waited = performance.now();
    while (this.#tab.asked.has(load.id) && performance.now() - waited < CANCEL_GRACE) await new Promise((next) => setTimeout(next, 50));
    if (!load.id || this.#tab.asked.has(load.id)) {
      this.#tab.stop();
      this.#tab.fail("cancelled", "");
    }
  }

  retryNow() {
    this.#stopRetrying();
    this.server.trying = true;
    this.#change();
    this.#socket.connect();
  }

  knows(what) {
    if (what === "silent") this.silentFor = 0;
    this.#change();
  }

  async stats() {
    return (await this.engine.ask({ type: "stats" })).stats;
  }

  async selfTest() {
    return (await this.#tab.ask({ type: "conformance", level: "quick" })).results;
  }

  // tune has the kernels measured again, once the engine has nothing to do.
  async tune() {
    return this.#tab.ask({ type: "tune" });
  }

  async #detect() {
    try {
      this.adapter = await this.#tab.ask({ type: "adapter" });
    } catch (error) {
      if (error.code === "worker_broken") throw error;
      this.adapter = null;
    }
    this.#change();
  }

  #progress(message, began) {
    const now = performance.now() - began;
    let row = this.waterfall.at(-1);
    row.end = now;
    if (row.phase !== message.phase) {
      row = { phase: message.phase, start: now, end: now, bytes: 0 };
      this.waterfall.push(row);
    }
    row.bytes = message.phase === "compile" ? 0 : message.done;
    const elapsed = now - row.start;
    const known = elapsed > 1000 && message.done > 0 && message.total > message.done;
    this.progress = { ...message, left: known ? (elapsed / message.done) * (message.total - message.done) : null };
    this.step = message.phase;
    for (const fn of this.#listeners.progress) fn();
  }

  #ready(info) {
    this.#show("ready", { info, progress: null, error: null });
    for (const fn of this.#listeners.ready) fn();
  }

  #failed(error) {
    this.#show("error", { error, progress: null, info: null });
  }

  #tabGone(code, message) {
    if (code === "device_lost") this.losses++;
    this.#tabInfo = null;
    this.#loading = null;
    this.#tab.stop(); // what the worker holds is of no use any more; a load starts a fresh one
    if (this.place === "tab") this.#failed({ code, message, detail: {} });
  }

  async #serverOpen() {
    this.#stopRetrying();
    this.#attempts = 0;
    try {
      const { info } = await this.#socket.ask({ type: "stats" });
      if (this.place === "server") this.#ready(info);
    } catch {
      // Closed again meanwhile: "gone" is on its way.
    }
  }

  #serverGone() {
    if (this.place !== "server") return;
    const wait = Math.min(2 ** this.#attempts++, RETRY_MAX);
    this.#stopRetrying();
    this.server.retryIn = wait;
    this.#show("error", { error: { code: "server_gone", message: "", detail: {} } });
    this.#retry = setInterval(() => {
      this.server.retryIn--;
      if (this.server.retryIn <= 0) this.retryNow();
      else this.#change();
    }, 1000);
  }

  #stopRetrying() {
    clearInterval(this.#retry);
    this.server.retryIn = null;
    this.server.trying = false;
  }

  #show(phase, rest) {
    this.phase = phase;
    Object.assign(this, rest);
    this.#change();
  }

  #change() {
    for (const fn of this.#listeners.change) fn();
  }
}

export const isOwn = (model) => ["files", "url", "hub"].includes(model?.kind);

// forWorker is the part of the protocol's load message that says which model.
function forWorker(model) {
  switch (model.kind) {
    case "synthetic":
      return { kind: "synthetic", name: model.id.replace(/^synthetic:/, "") };
    case "files":
      return { kind: "files", name: model.title, files: model.files };
    case "hub":
      return { kind: "hub", url: `https://${model.site}`, name: model.repo, revision: model.revision };
  }
  return { kind: model.kind, url: model.url };
}

// remembered lists the models at addresses that were loaded before. What is stored may be of any shape.
function remembered() {
  const list = settings.get("addresses");
  const text = (v) => typeof v === "string" && v.length < 4096;
  return (Array.isArray(list) ? list : [])
    .filter((m) => m && text(m.id) && text(m.name) && (m.kind === "hub" ? text(m.site) && text(m.repo) && text(m.revision) : m.kind === "url" && text(m.url)))
    .map((m) => ({ ...m, loaded: true }));
}
