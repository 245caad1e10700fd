// Fetches the files of a bundle for engine.wasm: with progress, retries and a check of the content, and through the browser's
// cache, in which a file's key is its hash. Defines globalThis.pagelightFetch = {get}.
"use strict";
(() => {
  const CACHE = "pagelight-v0";
  const ATTEMPTS = 5;
  const FIRST_PAUSE = 500; // ms, doubled after each attempt
  const STALL = 30000; // ms without a byte, after which an attempt is given up

  // The kinds of failure, which Go turns into errors.
  class Failure extends Error {
    constructor(kind, message, retry = false) {
      super(message);
      this.kind = kind; // "missing", "size", "sha256", "network"
      this.retry = retry;
    }
  }

  const sleep = (ms, signal) =>
    new Promise((resolve, reject) => {
      const stop = () => {
        clearTimeout(timer);
        reject(signal.reason);
      };
      const timer = setTimeout(() => {
        signal.removeEventListener("abort", stop);
        resolve();
      }, ms);
      signal.addEventListener("abort", stop, { once: true });
    });

  async function sha256(buffer) {
    const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", buffer));
    return Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("");
  }

  // openCache gives null where there is no cache: insecure origins, some private modes.
  async function openCache() {
    try {
      return (await globalThis.caches?.open(CACHE)) ?? null;
    } catch {
      return null;
    }
  }

  const keyOf = (hash) => new URL(`pagelight-content/${hash}`, location.origin).href;

  // download makes one attempt. mode is that of the browser's HTTP cache.
  async function download(url, size, signal, mode, progress) {
    const attempt = new AbortController();
    const stop = () => attempt.abort(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    let timer = 0;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => attempt.abort(new Failure("network", `no data for ${STALL / 1000} s`, true)), STALL);
    };
    try {
      alive();
      const response = await fetch(url, { signal: attempt.signal, cache: mode });
      if (!response.ok) {
        const retry = response.status >= 500 || response.status === 429 || response.status === 408;
        throw new Failure(retry ? "network" : "missing", `the server answers ${response.status} ${response.statusText}`.trim(), retry);
      }
      const parts = [];
      const whole = size >= 0 ? new Uint8Array(size) : null;
      let length = 0;
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        alive();
        if (whole === null) parts.push(value);
        else if (length + value.length > size) throw new Failure("size", `more than ${size}`);
        else whole.set(value, length);
        length += value.length;
        progress(length);
      }
      if (whole === null) return await new Blob(parts).arrayBuffer();
      if (length !== size) throw new Failure("size", String(length), true); // most often a connection that broke
      return whole.buffer;
    } catch (e) {
      if (signal.aborted) throw signal.reason;
      if (attempt.signal.aborted) throw attempt.signal.reason;
      if (e instanceof Failure) throw e;
      if (e instanceof RangeError) throw new Failure("memory", String(e.message));
      throw new Failure("network", String(e?.message ?? e), true);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
    }
  }

  async function downloadWithRetries(url, size, signal, mode, attempts, progress) {
    for (let n = 1, pause = FIRST_PAUSE; ; n++, pause *= 2) {
      try {
        return await download(url, size, signal, n > 1 ? "reload" : mode, progress);
      } catch (e) {
        if (signal.aborted || !e.retry || n === attempts) throw e;
        progress(0);
        await sleep(pause * (0.75 + Math.random() / 2), signal);
      }
    }
  }

  // fetchNamed fetches a file that may change under its name, a manifest. Without a network the last copy serves.
  async function fetchNamed(url, signal, progress) {
    const cache = await openCache();
    const copy = await cache?.match(url).catch(() => null);
    try {
      const buffer = await downloadWithRetries(url, -1, signal, "no-cache", copy ? 1 : ATTEMPTS, progress);
      cache?.put(url, new Response(buffer)).catch(() => {}); // the shards tell whether there is room
      return { buffer, verified: false };
    } catch (e) {
      if (!copy || e.kind !== "network") throw e;
      return { buffer: await copy.arrayBuffer(), verified: false };
    }
  }

  // fetchContent fetches a file whose content is known by its hash.
  async function fetchContent(url, size, hash, signal, progress, kept) {
    const canCheck = Boolean(globalThis.crypto?.subtle); // not on insecure origins; Go checks then
    const cache = await openCache();
    const key = keyOf(hash);
    try {
      const buffer = await (await cache?.match(key))?.arrayBuffer();
      if (buffer && buffer.byteLength === size && (!canCheck || (await sha256(buffer)) === hash)) {
        progress(size);
        return { buffer, verified: canCheck };
      }
      if (buffer) await cache.delete(key);
    } catch {
      // A cache that fails is as good as none.
    }
    for (const mode of ["default", "reload"]) {
      const buffer = await downloadWithRetries(url, size, signal, mode, ATTEMPTS, progress);
      const found = canCheck ? await sha256(buffer) : hash;
      if (found === hash) {
        kept(cache && canCheck ? cache.put(key, new Response(buffer)).then(() => true, () => false) : Promise.resolve(false));
        return { buffer, verified: canCheck };
      }
      progress(0);
      if (mode === "reload") throw new Failure("sha256", found); // not an old copy on the way: the file itself is wrong
    }
  }

  // get fetches a file. size is -1 and hash "" when they are not known. on(token, event, value, detail) is called with
  // ("progress", bytes so far), and ("done", ArrayBuffer, verified) or ("failed", kind, message), and, for what was put into
  // the cache or could not be, ("kept", whether it is there), before or after "done". After abort() it is not called any more.
  function get(token, url, size, hash, on) {
    const controller = new AbortController();
    const { signal } = controller;
    const say = (...args) => {
      if (!signal.aborted) on(token, ...args);
    };
    let shown = 0;
    const progress = (bytes) => {
      const now = performance.now();
      if (bytes !== size && bytes !== 0 && now - shown < 50) return;
      shown = now;
      say("progress", bytes);
    };
    const kept = (promise) => void promise.then((ok) => say("kept", ok));
    const at = new URL(url, location.href).href;
    (hash ? fetchContent(at, size, hash, signal, progress, kept) : fetchNamed(at, signal, progress)).then(
      ({ buffer, verified }) => say("done", buffer, verified),
      (e) => say("failed", e.kind ?? "network", String(e?.message ?? e)),
    );
    return { abort: () => controller.abort(new Failure("aborted", "aborted")) };
  }

  globalThis.pagelightFetch = { get };
})();
