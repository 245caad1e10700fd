// Keeps what engine.wasm has measured on an adapter, for the next time: texts by key in IndexedDB. Defines
// globalThis.pagelightTuning = {get, put}. Where there is no storage nothing is kept, and nothing else changes.
"use strict";
(() => {
  const NAME = "pagelight-tuning";
  const STORE = "texts";
  const MOST = 16; // adapters, drivers and versions of the kernels; the oldest go

  const done = (request) =>
    new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });

  function open() {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "key" });
    return done(request);
  }

  // within runs f with the store in a transaction and gives what f gave when that is complete.
  async function within(mode, f) {
    const db = await open();
    try {
      const transaction = db.transaction(STORE, mode);
      const complete = new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onerror = transaction.onabort = () => reject(transaction.error);
      });
      complete.catch(() => {}); // f says so too
      const value = await f(transaction.objectStore(STORE));
      await complete;
      return value;
    } finally {
      db.close();
    }
  }

  // get gives the text of a key, or "".
  async function get(key) {
    try {
      const found = await within("readonly", (store) => done(store.get(key)));
      return typeof found?.text === "string" ? found.text : "";
    } catch {
      return "";
    }
  }

  // put keeps a text, and says whether it is kept.
  async function put(key, text) {
    try {
      await within("readwrite", async (store) => {
        await done(store.put({ key, text, at: Date.now() }));
        const all = await done(store.getAll());
        const old = all.sort((a, b) => b.at - a.at).slice(MOST);
        await Promise.all(old.map((entry) => done(store.delete(entry.key))));
      });
      return true;
    } catch {
      return false;
    }
  }

  globalThis.pagelightTuning = { get, put };
})();
