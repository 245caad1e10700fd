// The web worker of the page: loads the engine and passes messages between it and the page, as the protocol has them. Go sees
// JSON text, and numbers for files; the page sees objects.
//
// A ping is answered here until the engine runs and by the engine from then on, so that an engine that hangs is seen. When
// the engine cannot be loaded or crashes, everything under way ends with an error, and so does everything that comes after.
"use strict";
{
  // Where the Content-Security-Policy asks for trusted types, a script's address must come from a policy that it names.
  const scripts = ["dist/wasm_exec.js", "gpu.js", "fetch.js", "ranges.js", "tuning.js"];
  const policy = globalThis.trustedTypes?.createPolicy("pagelight", {
    createScriptURL: (url) => {
      if (!scripts.includes(url)) throw new TypeError("not a script of the engine");
      return url;
    },
  });
  importScripts(...scripts.map((url) => policy?.createScriptURL(url) ?? url));
}
(() => {
  const WASM = "dist/engine.wasm";
  const MAX_LOG = 2000; // characters of Go's last words, for the message about a crash

  const waiting = []; // messages for an engine that does not run yet
  const open = new Set(); // ids that have not been answered
  let toGo = null;
  let failure = null; // why there is no engine and will be none: {code, message}
  let log = "";

  const fail = (id) => postMessage({ type: "error", id, status: 500, code: failure.code, error: { message: failure.message, type: "server_error", param: null, code: failure.code } });

  function giveUp(code, message) {
    if (failure) return;
    failure = { code, message };
    toGo = null;
    fail("");
    for (const id of open) fail(id);
    open.clear();
    waiting.length = 0;
    // For whoever only listens to the worker's error event.
    setTimeout(() => {
      throw new Error(`Pagelight: ${code}: ${message}`);
    });
  }

  addEventListener("message", ({ data }) => {
    const { type, id } = data ?? {};
    if (failure) {
      if (id !== undefined && type !== "cancel" && type !== "ping") fail(id);
      return;
    }
    if (type === "forget") {
      pagelightRanges.forget(String(data.url)).catch(() => {}).then(() => postMessage({ type: "forgotten", id }));
      return;
    }
    if (type === "work") {
      postMessage({ type, id, work: { ...pagelightGPU.work } });
      return;
    }
    if (type === "ping" && !toGo) {
      postMessage({ type: "pong", id });
      return;
    }
    if (id !== undefined && type !== "cancel") open.add(id);
    if (type === "load" && Array.isArray(data.model?.files)) data.model.files = pagelightRanges.take(data.model.files); // no JSON can hold a file
    if (toGo) toGo(JSON.stringify(data));
    else waiting.push(data);
  });

  // What the engine calls: start once it can receive, send for each message.
  globalThis.pagelightBridge = {
    start(receive) {
      toGo = receive;
      for (const data of waiting.splice(0)) toGo(JSON.stringify(data));
    },
    send(text) {
      const message = JSON.parse(text);
      if (message.type !== "chunk" && message.type !== "progress") open.delete(message.id);
      postMessage(message);
    },
  };

  // Go's standard output and error: whole lines to the console, the end of it kept.
  const decoder = new TextDecoder();
  let line = "";
  globalThis.fs.writeSync = (fd, bytes) => {
    const text = decoder.decode(bytes, { stream: true });
    log += text;
    const crash = log.search(/^(panic: |fatal error: |runtime: )/m);
    log = crash >= 0 ? log.slice(crash, crash + MAX_LOG) : log.slice(-MAX_LOG); // a crash says the most where it begins
    line += text;
    const end = line.lastIndexOf("\n");
    if (end >= 0) {
      console[fd === 2 ? "error" : "log"](line.slice(0, end));
      line = line.slice(end + 1);
    }
    return bytes.length;
  };

  async function instantiate(imports) {
    const response = await fetch(WASM);
    if (!response.ok) throw new Error(`${WASM}: the server answers ${response.status}`);
    // Streaming needs the right type, which not every file host sends.
    if (/^application\/wasm\b/.test(response.headers.get("content-type") ?? "")) return WebAssembly.instantiateStreaming(response, imports);
    return WebAssembly.instantiate(await response.arrayBuffer(), imports);
  }

  async function main() {
    const go = new Go();
    go.argv = ["pagelight"];
    let status = 0;
    go.exit = (code) => (status = code);
    let instance;
    try {
      ({ instance } = await instantiate(go.importObject));
    } catch (e) {
      giveUp("error", `the engine could not be loaded: ${e?.message ?? e}`);
      return;
    }
    try {
      await go.run(instance);
      giveUp("crashed", `the engine ended with status ${status}${log ? `:\n${log}` : ""}`);
    } catch (e) {
      giveUp("crashed", `${e?.message ?? e}${log ? `:\n${log}` : ""}`);
    }
  }
  main();
})();
