// Fetches files for engine.wasm with progress and retries: those of a bundle with a check of the content, and through the
// browser's cache, in which a file's key is its hash; others, such as GGUF files, into the cache under their address. Holds files
// that the page has passed, or that were fetched, for reading by ranges. Defines globalThis.pagelightFetch = {get, getFile, files}.
"use strict";
(() => {
  const CACHE = "pagelight-v0";
  const ATTEMPTS = 5;
  const FIRST_PAUSE = 500; // ms, doubled after each attempt
  const STALL = 30000; // ms without a byte, after which an attempt is given up
  const PART = 8 << 20; // bytes that are put into a blob at a time

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

  // Where the bytes of a download go: one buffer of a known size, ...
  function bufferOf(size) {
    const whole = new Uint8Array(size);
    let length = 0;
    return {
      write(chunk) {
        if (length + chunk.length > size) throw new Failure("size", `more than ${size}`);
        whole.set(chunk, length);
        length += chunk.length;
      },
      end() {
        if (length !== size) throw new Failure("size", String(length), true); // most often a connection that broke
        return whole.buffer;
      },
    };
  }

  // ... or a blob, of which the browser keeps large parts on disk.
  function blobOf() {
    const blobs = [];
    let parts = [];
    let waiting = 0;
    const flush = () => {
      if (waiting > 0) blobs.push(new Blob(parts));
      parts = [];
      waiting = 0;
    };
    return {
      write(chunk) {
        parts.push(chunk);
        waiting += chunk.length;
        if (waiting >= PART) flush();
      },
      end() {
        flush();
        return new Blob(blobs);
      },
    };
  }

  // download makes one attempt. mode is that of the browser's HTTP cache. begin(response) is told of the answer before its content,
  // and may give something to have instead of it.
  async function download(url, newSink, signal, mode, progress, begin = () => undefined) {
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
      const instead = begin(response);
      if (instead !== undefined) {
        attempt.abort();
        return instead;
      }
      const sink = newSink();
      let length = 0;
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        alive();
        sink.write(value);
        length += value.length;
        progress(length);
      }
      return sink.end();
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

  async function downloadWithRetries(url, newSink, signal, mode, attempts, progress, begin) {
    for (let n = 1, pause = FIRST_PAUSE; ; n++, pause *= 2) {
      try {
        return await download(url, newSink, signal, n > 1 ? "reload" : mode, progress, begin);
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
      const blob = await downloadWithRetries(url, blobOf, signal, "no-cache", copy ? 1 : ATTEMPTS, progress);
      const buffer = await blob.arrayBuffer();
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
      const buffer = await downloadWithRetries(url, () => bufferOf(size), signal, mode, ATTEMPTS, progress);
      const found = canCheck ? await sha256(buffer) : hash;
      if (found === hash) {
        kept(cache && canCheck ? cache.put(key, new Response(buffer)).then(() => true, () => false) : Promise.resolve(false));
        return { buffer, verified: canCheck };
      }
      progress(0);
      if (mode === "reload") throw new Failure("sha256", found); // not an old copy on the way: the file itself is wrong
    }
  }

  // sameFile says whether a copy is what the server has now: of the same length, and of the same tag or date.
  function sameFile(copy, now) {
    const same = (name) => copy.headers.get(name) === now.headers.get(name);
    const told = now.headers.has("etag") ? "etag" : "last-modified";
    return now.headers.has(told) && same(told) && same("content-length");
  }

  // fetchFile fetches a large file whose content is known by nothing but its address. The answer's header tells whether the copy
  // of an earlier visit still serves; without a network it does.
  async function fetchFile(url, signal, progress, total, kept) {
    const cache = await openCache();
    const copy = await cache?.match(url).catch(() => null);
    let headers = null;
    const begin = (response) => {
      if (copy && sameFile(copy, response)) return copy.blob();
      headers = new Headers();
      for (const name of ["content-length", "etag", "last-modified"]) {
        if (response.headers.has(name)) headers.set(name, response.headers.get(name));
      }
      total(Number(response.headers.get("content-length") ?? -1));
      return undefined;
    };
    let blob;
    try {
      blob = await downloadWithRetries(url, blobOf, signal, "no-store", copy ? 1 : ATTEMPTS, progress, begin); // one copy will do
    } catch (e) {
      if (!copy || e.kind !== "network") throw e;
      blob = await copy.blob();
      headers = null;
    }
    if (headers) kept(cache ? cache.put(url, new Response(blob, { headers })).then(() => true, () => false) : Promise.resolve(false));
    total(blob.size);
    progress(blob.size);
    return blob;
  }

  // files are blobs that Go reads, by number.
  const files = (() => {
    const table = new Map();
    let last = 0;
    const reader = globalThis.FileReaderSync ? new FileReaderSync() : null; // in workers only
    return {
      put(blob) {
        table.set(++last, blob);
        return last;
      },
      size: (id) => table.get(id)?.size ?? -1,
      name: (id) => table.get(id)?.name ?? "",
      // read gives bytes, or a string that says why there are none: a file on disk may have changed or gone.
      read(id, offset, length) {
        try {
          return new Uint8Array(reader.readAsArrayBuffer(table.get(id).slice(offset, offset + length)));
        } catch (e) {
          return String(e?.message ?? e);
        }
      },
      release: (id) => table.delete(id),
    };
  })();

  // get fetches a file. size is -1 and hash "" when they are not known. on(token, event, value, detail) is called with
  // ("progress", bytes so far), and ("done", ArrayBuffer, verified) or ("failed", kind, message), and, for what was put into
  // the cache or could not be, ("kept", whether it is there), before or after "done". After abort() it is not called any more.
  function get(token, url, size, hash, on) {
    return start(token, url, size, on, async (at, signal, say, progress, kept) => {
      const { buffer, verified } = await (hash ? fetchContent(at, size, hash, signal, progress, kept) : fetchNamed(at, signal, progress));
      say("done", buffer, verified);
    });
  }

  // getFile is get for a file that is read by ranges: ("total", bytes or -1) is told before any progress, and in the end
  // ("file", its number in files).
  function getFile(token, url, on) {
    return start(token, url, -1, on, async (at, signal, say, progress, kept) => {
      const blob = await fetchFile(at, signal, progress, (bytes) => say("total", bytes), kept);
      if (!signal.aborted) say("file", files.put(blob));
    });
  }

  function start(token, url, size, on, run) {
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
    run(new URL(url, location.href).href, signal, say, progress, kept).catch((e) => say("failed", e.kind ?? "network", String(e?.message ?? e)));
    return { abort: () => controller.abort(new Failure("aborted", "aborted")) };
  }

  globalThis.pagelightFetch = { get, getFile, files };
})();
