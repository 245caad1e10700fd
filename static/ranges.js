// Reads files piece by piece for engine.wasm: those that the reader picked or dropped, and those at an address that the reader
// typed. No file is ever in memory as a whole. Defines globalThis.pagelightRanges.
//
// A file at an address is read by HTTP ranges, in chunks that the browser's cache keeps for next time as long as the server's
// ETag or Last-Modified says that the file is the same.
"use strict";
(() => {
  const CACHE = "pagelight-files-v0";
  const CHUNK = 2 << 20; // bytes of a range; no file is asked for in smaller ones
  const AHEAD = 3; // chunks that are fetched before they are asked for
  const HELD = 8; // chunks of a file in memory
  const WINDOW = 256 << 10; // bytes read at once from a picked file, for what is read in small pieces
  const ATTEMPTS = 5;
  const FIRST_PAUSE = 500; // ms, doubled after each attempt
  const STALL = 30000; // ms without a byte, after which an attempt is given up
  const WHOLE = 32 << 20; // bytes of a file that is taken although the server knows no ranges

  // The kinds of failure, which Go turns into errors: "missing", "refused", "no_ranges", "unreachable", "network", "changed".
  class Failure extends Error {
    constructor(kind, message, retry = false) {
      super(message);
      this.kind = kind;
      this.retry = retry;
    }
  }

  const aborted = () => new Failure("aborted", "aborted");

  // ---- Files of this machine

  const given = new Map(); // token -> File
  let tokens = 0;

  // take keeps files that came with a message, each alone or as {path, file}, and gives what stands for them in JSON. It forgets
  // those taken before.
  function take(files) {
    given.clear();
    return files.map((item) => {
      const file = item instanceof Blob ? item : item.file;
      given.set(++tokens, file);
      return { path: item.path || file.name || "", token: tokens };
    });
  }

  class Picked {
    #file;
    #window = null; // {at, bytes}

    constructor(file) {
      this.#file = file;
      this.size = file.size;
    }

    async read(offset, length) {
      const held = this.#window;
      if (held && offset >= held.at && offset + length <= held.at + held.bytes.length) return held.bytes.subarray(offset - held.at, offset - held.at + length);
      const end = Math.min(this.size, offset + Math.max(length, WINDOW));
      let bytes;
      try {
        bytes = new Uint8Array(await this.#file.slice(offset, end).arrayBuffer());
      } catch (e) {
        throw new Failure("changed", String(e?.message ?? e)); // browsers refuse what was written to since it was picked
      }
      if (bytes.length !== end - offset) throw new Failure("changed", `${bytes.length} bytes of ${end - offset} are left`);
      this.#window = bytes.length <= WINDOW ? { at: offset, bytes } : null;
      return bytes.subarray(0, length);
    }

    close() {}
  }

  // ---- Files at an address

  const sleep = (ms, signal) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, ms);
      signal.addEventListener("abort", () => (clearTimeout(timer), reject(aborted())), { once: true });
    });

  async function openCache() {
    try {
      return (await globalThis.caches?.open(CACHE)) ?? null;
    } catch {
      return null; // insecure origins, some private modes
    }
  }

  const keyOf = (url, part) => new URL(`pagelight-file/${encodeURIComponent(url)}/${part}`, location.origin).href;

  // markOf is by what a server says that a file is the same; "" where it does not, or not to pages of other sites.
  const markOf = (headers) => headers.get("etag") || headers.get("last-modified") || "";

  // totalOf is the size of the whole file that a part belongs to, undefined where it is not told.
  function totalOf(headers) {
    const total = /\/(\d+)$/.exec(headers.get("content-range") ?? "")?.[1];
    return total === undefined ? undefined : Number(total);
  }

  const chunkEnd = (size, start) => Math.min(size, start + CHUNK);

  // request asks once for a range of an address.
  async function request(url, start, end, signal, count) {
    const attempt = new AbortController();
    const stop = () => attempt.abort(aborted());
    signal.addEventListener("abort", stop, { once: true });
    let timer = 0;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => attempt.abort(new Failure("network", `no data for ${STALL / 1000} s`, true)), STALL);
    };
    let counted = 0;
    try {
      alive();
      const own = new URL(url).origin === location.origin;
      // A single range needs no leave of the server under CORS. no-store: the chunks have a cache of their own.
      const response = await fetch(url, {
        signal: attempt.signal, cache: "no-store", credentials: own ? "same-origin" : "omit", referrerPolicy: "no-referrer",
        headers: { Range: `bytes=${start}-${end - 1}` },
      }).catch((e) => {
        if (attempt.signal.aborted) throw attempt.signal.reason;
        // Browsers do not say more: no such host, no answer, or one without leave for this page.
        throw new Failure("unreachable", String(e?.message ?? e), own);
      });
      const { status } = response;
      const says = `the server answers ${status} ${response.statusText}`.trim();
      if (status === 404 || status === 410) throw new Failure("missing", says);
      if (status === 401 || status === 403) throw new Failure("refused", says);
      if (status >= 500 || status === 429 || status === 408) throw new Failure("network", says, true);
      if (status === 416) throw new Failure("changed", says);
      if (status !== 206 && status !== 200) throw new Failure("network", says);
      if (/^text\/html\b/i.test(response.headers.get("content-type") ?? "")) throw new Failure("missing", "the server sends a page instead of a file");
      const most = status === 206 ? end - start : WHOLE;
      if (status === 200 && Number(response.headers.get("content-length") ?? 0) > WHOLE) throw new Failure("no_ranges", says);
      const parts = [];
      const reader = response.body.getReader();
      for (let length = 0; ; ) {
        const { done, value } = await reader.read();
        if (done) break;
        alive();
        length += value.length;
        if (length > most) throw new Failure(status === 206 ? "network" : "no_ranges", says);
        parts.push(value);
        counted += value.length;
        count(value.length);
      }
      return { response, bytes: new Uint8Array(await new Blob(parts).arrayBuffer()) };
    } catch (e) {
      if (counted) count(-counted);
      if (attempt.signal.aborted) throw attempt.signal.reason;
      throw e instanceof Failure ? e : new Failure("network", String(e?.message ?? e), true);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      attempt.abort(); // of what is left of the answer
    }
  }

  async function requestWithRetries(url, start, end, signal, count, attempts) {
    for (let n = 1, pause = FIRST_PAUSE; ; n++, pause *= 2) {
      try {
        return await request(url, start, end, signal, count);
      } catch (e) {
        if (signal.aborted || !e.retry || n >= attempts) throw e;
        await sleep(pause * (0.75 + Math.random() / 2), signal);
      }
    }
  }

  class Remote {
    size = 0;
    #url;
    #count;
    #signal;
    #controller = new AbortController();
    #cache = null;
    #mark = ""; // by which the server says whether it is the same file; "": it does not say
    #chunks = new Map(); // number -> promise of its bytes, the last used last
    #told = new Set(); // chunks that were counted
    #whole = null; // all of it, from a server that knows no ranges

    // count is called with the bytes that have come since the last call, a negative number when they have to come again, and with
    // null for what could not be kept for next time.
    constructor(url, count) {
      this.#url = url;
      this.#count = count;
      this.#signal = this.#controller.signal;
    }

    // open finds out how large the file is, which brings its first chunk, or one byte of it where the cache may have the rest.
    // Without a network, what the cache has serves.
    async open() {
      this.#cache = await openCache();
      const known = await this.#cache?.match(keyOf(this.#url, "head")).then((r) => r?.json()).catch(() => null);
      let first;
      try {
        if (known) {
          first = await requestWithRetries(this.#url, 0, 1, this.#signal, () => {}, 1);
          const { headers } = first.response;
          if (markOf(headers) === known.mark && first.response.status === 206 && [undefined, known.size].includes(totalOf(headers))) {
            this.size = known.size;
            this.#mark = known.mark;
            return this;
          }
          await forget(this.#url);
        }
        first = await requestWithRetries(this.#url, 0, CHUNK, this.#signal, (n) => this.#count(n), ATTEMPTS);
      } catch (e) {
        if (!known || (e.kind !== "network" && e.kind !== "unreachable")) throw e;
        this.size = known.size;
        this.#mark = known.mark;
        return this;
      }
      const { response, bytes } = first;
      this.#mark = markOf(response.headers);
      this.size = await this.#sizeOf(response, bytes.length);
      if (bytes.length !== (response.status === 200 ? this.size : chunkEnd(this.size, 0))) throw new Failure("network", `${bytes.length} bytes came of ${this.size}`);
      const head = { size: this.size, mark: this.#mark };
      if (response.status === 200) {
        this.#whole = bytes;
        return this;
      }
      this.#told.add(0);
      this.#chunks.set(0, Promise.resolve(bytes));
      this.#keep("head", JSON.stringify(head));
      this.#keep(0, bytes);
      return this;
    }

    // sizeOf is what an answer says of the whole file. Not every server shows Content-Range to pages of others.
    async #sizeOf(response, length) {
      if (response.status === 200) return length;
      const total = totalOf(response.headers);
      if (total !== undefined) return total;
      if (length < CHUNK) return length;
      const head = await fetch(this.#url, { method: "HEAD", signal: this.#signal, credentials: "omit", referrerPolicy: "no-referrer" }).catch(() => null);
      const size = Number(head?.headers.get("content-length") ?? NaN);
      if (!head?.ok || !(size >= length)) throw new Failure("no_ranges", "the server does not tell this page how large the file is (Content-Range)");
      return size;
    }

    #keep(part, content) {
      if (!this.#cache || !this.#mark) return this.#count(null);
      this.#cache.put(keyOf(this.#url, part), new Response(content)).catch(() => this.#count(null));
    }

    async #fetchChunk(n) {
      const start = n * CHUNK, end = chunkEnd(this.size, start);
      const tell = (bytes) => !this.#told.has(n) && this.#count(bytes);
      const cached = await this.#cache?.match(keyOf(this.#url, n)).then((r) => r?.arrayBuffer()).catch(() => null);
      if (this.#mark && cached?.byteLength === end - start) {
        tell(end - start);
        this.#told.add(n);
        return new Uint8Array(cached);
      }
      const { response, bytes } = await requestWithRetries(this.#url, start, end, this.#signal, tell, ATTEMPTS);
      const { headers, status } = response;
      if (status !== 206 || bytes.length !== end - start || markOf(headers) !== this.#mark || ![undefined, this.size].includes(totalOf(headers))) {
        throw new Failure("changed", "the file at this address became another one while it was read");
      }
      this.#told.add(n);
      this.#keep(n, bytes);
      return bytes;
    }

    #chunk(n) {
      const held = this.#chunks.get(n) ?? this.#fetchChunk(n);
      this.#chunks.delete(n);
      this.#chunks.set(n, held);
      held.catch(() => this.#chunks.get(n) === held && this.#chunks.delete(n));
      return held;
    }

    async read(offset, length) {
      if (this.#whole) return this.#whole.subarray(offset, offset + length);
      const first = Math.floor(offset / CHUNK), last = Math.floor((offset + length - 1) / CHUNK);
      const parts = [];
      for (let n = first; n <= last; n++) parts.push(this.#chunk(n));
      for (let n = last + 1; n <= last + AHEAD && n * CHUNK < this.size; n++) if (!this.#chunks.has(n)) this.#chunk(n);
      for (const n of this.#chunks.keys()) {
        if (this.#chunks.size <= Math.max(HELD, parts.length + AHEAD)) break;
        this.#chunks.delete(n);
      }
      if (first === last) {
        const bytes = await parts[0];
        return bytes.subarray(offset - first * CHUNK, offset - first * CHUNK + length);
      }
      const out = new Uint8Array(length);
      for (const [i, part] of parts.entries()) {
        const at = (first + i) * CHUNK, bytes = await part;
        const from = Math.max(0, offset - at), to = Math.min(bytes.length, offset + length - at);
        out.set(bytes.subarray(from, to), at + from - offset);
      }
      return out;
    }

    close() {
      this.#controller.abort(aborted());
      this.#chunks.clear();
      this.#whole = null;
    }
  }

  // forget takes files out of the cache: those whose addresses begin so.
  async function forget(url) {
    const cache = await openCache();
    if (!cache) return;
    const prefix = keyOf(url, "").replace(/\/$/, "");
    for (const request of await cache.keys()) if (request.url.startsWith(prefix)) await cache.delete(request);
  }

  // hub lists the files of a repository of Hugging Face, or of a mirror, as [{path, url}].
  async function hub(site, name, revision) {
    const at = encodeURIComponent(revision);
    const controller = new AbortController();
    const { bytes } = await requestWithRetries(`${site}/api/models/${name}/revision/${at}`, 0, WHOLE, controller.signal, () => {}, 2);
    let list;
    try {
      list = JSON.parse(new TextDecoder().decode(bytes)).siblings.map((file) => String(file.rfilename));
    } catch {
      throw new Failure("network", "the hub's answer is no list of files");
    }
    const url = (path) => `${site}/${name}/resolve/${at}/${path.split("/").map(encodeURIComponent).join("/")}`;
    return list.map((path) => ({ path, url: url(path) }));
  }

  // ---- What Go calls. Files that are open have a number, and belong to an owner, the loading of one model.

  const files = new Map(); // number -> {owner, file}
  let numbers = 0;
  let tell = () => {}; // (owner, bytes that have come since the last call, or null: something could not be kept for next time)

  const listen = (fn) => void (tell = fn);

  // open resolves to [number, size]. ref is a token of take or an address.
  async function open(owner, ref) {
    const number = ++numbers;
    if (typeof ref === "number") {
      if (!given.has(ref)) throw new Failure("changed", "the page no longer has the file");
      files.set(number, { owner, file: new Picked(given.get(ref)) });
    } else {
      const file = new Remote(ref, (bytes) => files.has(number) && tell(owner, bytes));
      files.set(number, { owner, file }); // from here on close finds it
      try {
        await file.open();
      } catch (e) {
        files.delete(number);
        throw e;
      }
    }
    return [number, files.get(number)?.file.size ?? 0];
  }

  async function read(number, offset, length) {
    const open = files.get(number);
    if (!open) throw aborted();
    return open.file.read(offset, length);
  }

  // close closes what belongs to an owner, and ends what is under way for it.
  function close(owner) {
    for (const [number, open] of files) {
      if (open.owner !== owner) continue;
      files.delete(number);
      open.file.close();
    }
  }

  globalThis.pagelightRanges = { take, listen, open, read, close, hub, forget };
})();
