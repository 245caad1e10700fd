// Starts worker.js and keeps what it says, by id.
"use strict";
globalThis.client = (() => {
  const seen = new Map(); // id -> {messages, last, resolve, promise}
  const broken = [];
  const of = (id) => {
    let entry = seen.get(id);
    if (!entry) {
      entry = { messages: [] };
      entry.promise = new Promise((resolve) => (entry.resolve = resolve));
      seen.set(id, entry);
    }
    return entry;
  };
  const policy = trustedTypes.createPolicy("pagelight", { createScriptURL: (url) => url });
  const worker = new Worker(policy.createScriptURL("worker.js"));
  worker.onmessage = ({ data }) => {
    const entry = of(data.id ?? data.type);
    entry.messages.push(data);
    if (data.type !== "chunk" && data.type !== "progress") entry.resolve();
  };
  worker.onerror = (event) => {
    broken.push(event.message);
    of("onerror").messages.push({ type: "onerror", message: event.message });
    of("onerror").resolve();
  };
  return {
    post(message) {
      worker.postMessage(message);
      return true;
    },
    async wait(id) {
      await of(id).promise;
      return JSON.stringify(of(id).messages);
    },
    count: (id) => of(id).messages.length,
    broken,
  };
})();
