// Runs dist/test.wasm with the arguments of the page's address and sends its output and exit code.
"use strict";
{
  const policy = trustedTypes.createPolicy("pagelight", { createScriptURL: (url) => url });
  importScripts(policy.createScriptURL("dist/wasm_exec.js"), policy.createScriptURL("dist/gpu.js"));
}
(async () => {
  const decoder = new TextDecoder("utf-8");
  globalThis.fs.writeSync = (fd, buf) => {
    postMessage({ output: decoder.decode(buf, { stream: true }) });
    return buf.length;
  };
  globalThis.process.cwd = () => "/";
  const go = new Go();
  globalThis.goValues = () => go._ids.size; // the objects that Go holds on to
  go.argv = JSON.parse(new URLSearchParams(location.search).get("args"));
  let code = -1;
  go.exit = (c) => (code = c);
  try {
    const { instance } = await WebAssembly.instantiateStreaming(fetch("dist/test.wasm"), go.importObject);
    await go.run(instance);
    postMessage({ code });
  } catch (e) {
    postMessage({ error: String(e?.stack ?? e), code });
  }
})();
