// Starts gotestworker.js and keeps what it says in goTest.
"use strict";
globalThis.goTest = { output: "", done: false, code: -1, error: "" };
{
  const policy = trustedTypes.createPolicy("pagelight", { createScriptURL: (url) => url });
  const worker = new Worker(policy.createScriptURL("gotestworker.js" + location.search));
  worker.onmessage = ({ data }) => {
    if (data.output) goTest.output += data.output;
    if ("error" in data) goTest.error = data.error;
    if ("code" in data) {
      goTest.code = data.code;
      goTest.done = true;
    }
  };
  worker.onerror = (event) => {
    goTest.error = event.message || "the worker could not be loaded";
    goTest.done = true;
  };
}
