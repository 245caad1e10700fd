// The one protocol of the page and its two transports: a web worker in this tab, and the server's WebSocket.
//
// A Channel keeps what is under way. A request gets its chunks and exactly one end(error or null); a question ("ask": stats,
// adapter, load ...) is a promise. When the transport dies, everything under way ends with the same error.

const policy = globalThis.trustedTypes?.createPolicy("pagelight", {
  createScriptURL: (url) => {
    if (url !== "worker.js") throw new TypeError("not the worker");
    return url;
  },
});

export class EngineError extends Error {
  // detail is the protocol's error object: message, code, and for some codes need, have or file.
  constructor(detail, status = 0) {
    super(detail.message || detail.code || "unknown error");
    this.code = detail.code || "error";
    this.detail = detail;
    this.status = status;
  }
}

class Channel {
  requests = new Map(); // id -> {chunk(data), end(error)}
  asked = new Map(); // id -> {type, resolve, reject, progress}
  #next = 0;
  #listeners = {};

  on(event, fn) {
    (this.#listeners[event] ??= []).push(fn);
    return this;
  }

  emit(event, value) {
    for (const fn of this.#listeners[event] ?? []) fn(value);
  }

  // generate starts a request. end is called once, also when the transport is already gone.
  generate(id, endpoint, body, handlers) {
    this.requests.set(id, handlers);
    this.send({ type: "generate", id, endpoint, body });
  }

  cancel(id) {
    this.send({ type: "cancel", id });
  }

  ask(message, progress) {
    const id = `q${++this.#next}`;
    const answer = new Promise((resolve, reject) => this.asked.set(id, { type: message.type, resolve, reject, progress }));
    this.send({ ...message, id });
    answer.id = id;
    return answer;
  }

  receive(message) {
    const request = this.requests.get(message.id);
    const asked = this.asked.get(message.id);
    switch (message.type) {
      case "chunk":
        request?.chunk(message.data);
        return;
      case "done":
        this.requests.delete(message.id);
        request?.end(null);
        return;
      case "error": {
        this.requests.delete(message.id);
        this.asked.delete(message.id);
        const error = new EngineError(message.error ?? {}, message.status);
        request?.end(error);
        asked?.reject(error);
        return;
      }
      case "progress":
        asked?.progress?.(message);
        return;
      case "lost":
        this.emit("lost", message.message);
        this.fail("device_lost", message.message);
        return;
      case "pong":
        return;
      default: // the answer to a question: stats, adapter, ready, conformance
        this.asked.delete(message.id);
        asked?.resolve(message);
    }
  }

  // fail ends everything under way.
  fail(code, message) {
    const error = new EngineError({ code, message });
    const requests = [...this.requests.values()];
    const asked = [...this.asked.values()];
    this.requests.clear();
    this.asked.clear();
    for (const request of requests) request.end(error);
    for (const question of asked) question.reject(error);
  }
}

const IDLE_MISSES = 5; // seconds without an answer to a ping before an idle worker is given up
const BUSY_MISSES = 60; // the same while it runs or loads: one step can be long on a slow device
const LATE = 3000; // ms: a tick this late means that the page itself slept, which says nothing about the worker

// TabEngine is the worker of this tab. It emits "lost" (device), "silent" (the worker was given up; seconds) and "broken"
// (the worker could not start or crashed; message).
export class TabEngine extends Channel {
  #worker = null;
  #timer = 0;
  #misses = 0;
  #ticked = 0;
  #pings = 0;

  start() {
    if (this.#worker) return;
    const worker = new Worker(policy ? policy.createScriptURL("worker.js") : "worker.js");
    this.#worker = worker;
    worker.onmessage = ({ data }) => {
      if (worker !== this.#worker) return;
      this.#misses = 0; // any message is a sign of life
      this.receive(data);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      if (worker !== this.#worker) return;
      this.stop();
      const message = event.message || "worker.js";
      this.fail("worker_broken", message);
      this.emit("broken", message);
    };
    this.#misses = 0;
    this.#ticked = performance.now();
    this.#timer = setInterval(() => this.#tick(), 1000);
  }

  stop() {
    clearInterval(this.#timer);
    this.#worker?.terminate();
    this.#worker = null;
  }

  send(message) {
    this.start();
    this.#worker.postMessage(message);
  }

  // load resolves to engine.Info.
  load(model, options, progress) {
    return this.ask({ type: "load", model, options }, progress);
  }

  #tick() {
    const now = performance.now();
    if (now - this.#ticked > LATE) this.#misses = 0;
    this.#ticked = now;
    const busy = this.requests.size > 0 || [...this.asked.values()].some((question) => question.type !== "stats");
    if (this.#misses >= (busy ? BUSY_MISSES : IDLE_MISSES)) {
      const seconds = this.#misses;
      this.stop();
      this.fail("worker_silent", `no answer for ${seconds} s`);
      this.emit("silent", seconds);
      return;
    }
    this.#misses++;
    this.send({ type: "ping", id: `p${++this.#pings}` });
  }
}

// ServerEngine is the server's WebSocket. It emits "open" and "gone"; the session decides when to connect again.
export class ServerEngine extends Channel {
  #socket = null;

  connect() {
    this.close();
    const url = new URL("v1/stream", document.baseURI);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url);
    this.#socket = socket;
    socket.onopen = () => socket === this.#socket && this.emit("open");
    socket.onmessage = ({ data }) => {
      if (socket !== this.#socket) return;
      let message;
      try {
        message = JSON.parse(data);
      } catch {
        return; // not of this protocol
      }
      this.receive(message);
    };
    socket.onclose = () => {
      if (socket !== this.#socket) return;
      this.#socket = null;
      this.fail("server_gone", "the connection was closed");
      this.emit("gone");
    };
  }

  close() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    if (socket) this.fail("server_gone", "the connection was closed");
  }

  send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
    else queueMicrotask(() => this.fail("server_gone", "not connected"));
  }
}

// probeServer asks whether a Pagelight server serves this page: {models} or {reason: "none" | "key"}.
export async function probeServer() {
  try {
    const response = await fetch("v1/models", { headers: { Accept: "application/json" } });
    if (response.status === 401 || response.status === 403) return { reason: "key" };
    if (!response.ok || !/json/.test(response.headers.get("content-type") ?? "")) return { reason: "none" };
    const list = await response.json();
    return list?.object === "list" && Array.isArray(list.data) ? { models: list.data } : { reason: "none" };
  } catch {
    return { reason: "none" };
  }
}

export async function fetchJSON(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return response.json();
}
