// The JavaScript half of internal/gpu/webgpujs. Go keeps numbers, this file keeps the WebGPU objects behind them, so that a
// step of the engine costs one call across the border: submit(program) replays what was recorded.
//
// Loaded before engine.wasm, in a worker or a page. Defines globalThis.pagelightGPU = {open, probe, blobs, turn, work}.
//
// Whatever takes time ends with a notification (token, code, value, message): token is the caller's, code one of CODE below. A
// token that was forgotten (forget, cancelRead) is never notified, and what it would have made is dropped. Every argument of a
// call and every string is an object of Go's that it has to collect, so notifyGo has no arguments: Go copies the numbers from
// handle.event, and asks for the message when there is a fault.
"use strict";
(() => {
  const CODE = { ok: 0, invalid: 1, memory: 2, lost: 3, noWebGPU: 4, insecure: 5, noAdapter: 6, noTimestamps: 7 };
  const LOST_TOKEN = -1;

  // The optional features that kernels or measurements can use; those that the adapter lacks are not asked for.
  const FEATURES = ["shader-f16", "subgroups", "timestamp-query"];
  // What the shading language may have beside, which needs no asking.
  const LANGUAGE = ["subgroup_id"];
  // The limits that kernels use; the adapter's own values are asked for, since a device has the defaults otherwise.
  const LIMITS = [
    "maxBufferSize", "maxStorageBufferBindingSize", "maxUniformBufferBindingSize", "maxStorageBuffersPerShaderStage",
    "maxBindingsPerBindGroup", "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupSizeX", "maxComputeWorkgroupSizeY", "maxComputeWorkgroupSizeZ",
    "maxComputeWorkgroupsPerDimension", "minStorageBufferOffsetAlignment", "minUniformBufferOffsetAlignment",
  ];
  const BINDING = { u: "uniform", r: "read-only-storage", w: "storage" };
  // Chrome's GPU process looks for finished work every 2 ms, and whenever a command comes in. A step of a small model is
  // shorter than that, so while a result is awaited a command without effect is sent now and then. Measured on an H200:
  // the built-in model 480 to 650 tokens/s instead of 290. Not for software adapters, which need the processor themselves.
  const NUDGE_EVERY = 0.2; // ms
  const NUDGE_FOR = 8; // ms of a wait; after that 2 ms more do not matter
  // Browsers round timestamps, Chrome to 0.1 ms, so that a command is repeated in its pass until the pass takes many of these
  // steps. Where all times of a pass are multiples of CLOCK_STEP they are taken for rounded.
  const CLOCK_STEP = 100_000; // ns
  const CLOCK_STEPS = 20; // that a pass has to take
  const MAX_REPEAT = 4096; // of a command in its pass
  const MAX_PROFILED = 2048; // commands of one query set, which has at most 4,096 places
  const READ = 1; // GPUMapMode.READ
  const COMPUTE = 4; // GPUShaderStage.COMPUTE

  // What all devices have done so far: whoever measures takes differences. encodeMS is the time inside submit.
  const work = { submits: 0, dispatches: 0, readBacks: 0, bytesRead: 0, encodeMS: 0 };

  class Table {
    #items = [null];
    #free = [];
    put(item) {
      const id = this.#free.pop() ?? this.#items.length;
      this.#items[id] = item;
      return id;
    }
    get(id) {
      return this.#items[id] ?? null;
    }
    take(id) {
      const item = this.get(id);
      if (item !== null) {
        this.#items[id] = null;
        this.#free.push(id);
      }
      return item;
    }
    *values() {
      for (const item of this.#items) if (item !== null) yield item;
    }
  }

  // A reason with its code, for what goes wrong before there is a device.
  class Refusal extends Error {
    constructor(code, message) {
      super(message);
      this.code = code;
    }
  }

  const text = (e) => (e && e.message ? e.message : String(e));
  const isMemory = (e) =>
    (typeof GPUOutOfMemoryError !== "undefined" && e instanceof GPUOutOfMemoryError) || e instanceof RangeError;
  const codeOf = (e) => (isMemory(e) ? CODE.memory : CODE.invalid);

  async function findAdapter() {
    if (globalThis.isSecureContext === false) {
      throw new Refusal(CODE.insecure, "WebGPU needs https or localhost, and this page came from " + globalThis.location?.origin);
    }
    if (!globalThis.navigator?.gpu) {
      throw new Refusal(CODE.noWebGPU, "this browser has no WebGPU (navigator.gpu is missing)");
    }
    let adapter = null;
    let why = "";
    try {
      adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    } catch (e) {
      why = ": " + text(e);
    }
    if (!adapter) {
      throw new Refusal(CODE.noAdapter, "the browser has WebGPU but offers no adapter (GPU blocked, disabled or missing)" + why);
    }
    return adapter;
  }

  // isSoftware says whether an adapter is a program that runs on the processor.
  function isSoftware(info, adapter) {
    const names = [info.vendor, info.architecture, info.device, info.description].join(" ");
    return Boolean(info.isFallbackAdapter ?? adapter.isFallbackAdapter) ||
      /swiftshader|llvmpipe|lavapipe|softpipe|basic render|warp|software/i.test(names);
  }

  // describe gives plain data about an adapter; limits are those of the device when there is one.
  function describe(adapter, device) {
    const info = adapter.info ?? {};
    const limits = {};
    for (const name of LIMITS) limits[name] = (device ?? adapter).limits[name];
    return {
      vendor: info.vendor ?? "",
      architecture: info.architecture ?? "",
      device: info.device ?? "",
      description: info.description ?? "",
      software: isSoftware(info, adapter),
      features: [...FEATURES.filter((f) => (device ?? adapter).features.has(f)), ...LANGUAGE.filter((f) => navigator.gpu.wgslLanguageFeatures?.has(f))].join(","),
      subgroupMin: info.subgroupMinSize ?? 0,
      subgroupMax: info.subgroupMaxSize ?? 0,
      limits,
    };
  }

  // probe describes the adapter without opening a device. The result's "facts" are set once notify said ok.
  function probe(notify) {
    const handle = { facts: null, cancel: () => (notify = () => {}) };
    findAdapter().then(
      (adapter) => {
        handle.facts = describe(adapter, null);
        notify(0, CODE.ok, 0, "");
      },
      (e) => notify(0, e.code ?? CODE.noAdapter, 0, text(e)),
    );
    return handle;
  }

  // open asks for a device and gives at once the functions to use it, which work once notify(0, ok) was called.
  function open(notifyGo) {
    let device = null;
    let queue = null;
    let closed = false;
    let hardware = false;
    const buffers = new Table();
    const pipelines = new Table();
    const groups = new Table();
    const programs = new Table();
    const layouts = new Map(); // kinds -> {group, pipeline}
    const live = new Set(); // tokens that somebody waits for
    let writeScratch = new Uint8Array(64 << 10);
    let readScratch = new Uint8Array(64 << 10);
    let sequence = new Int32Array(64); // of programs, written by Go for submit
    const event = new Int32Array(3); // token, code and value of the notification under way
    let eventMessage = "";

    // Faults that belong to no waiting call: the first one, {error, at}, is given to the next wait or read that began after
    // submission number at.
    let fault = null;
    let lastScope = Promise.resolve(); // scopes resolve in order, so waiting for the last is waiting for all
    let submitted = 0; // submissions so far

    const notify = (token, code, value, message) => {
      if (closed) return;
      event[0] = token;
      event[1] = code;
      event[2] = value;
      eventMessage = message;
      notifyGo();
    };
    // finish notifies a token once, and says whether anybody still waited.
    const finish = (token, code, value, message) => {
      if (!live.delete(token)) return false;
      notify(token, code, value, message);
      return true;
    };
    const popScope = () => {
      const at = submitted;
      lastScope = device.popErrorScope().then(
        (error) => {
          if (error) fault ??= { error, at };
        },
        () => {}, // only when the device is lost, which is reported by itself
      );
    };
    // takeFault gives the fault to whoever began after a number of submissions.
    const takeFault = (began) => {
      if (fault === null || fault.at > began) return null;
      const { error } = fault;
      fault = null;
      return error;
    };

    // nudge keeps the GPU process looking while there is a wait that is not old.
    const post = globalThis.scheduler?.postTask
      ? (f) => void scheduler.postTask(f, { priority: "background" }) // after whatever else there is to do, the results too
      : (f) => void setTimeout(f);
    let waits = 0;
    let nudging = false;
    let nudgeUntil = 0;
    let nudged = 0;
    function nudge() {
      const now = performance.now();
      nudging = waits > 0 && now < nudgeUntil && !closed;
      if (!nudging) return;
      if (now - nudged >= NUDGE_EVERY) {
        nudged = now;
        device.pushErrorScope("validation");
        device.popErrorScope().catch(() => {}); // the device was lost, which is reported by itself
      }
      post(nudge);
    }
    // awaited waits for a promise and nudges meanwhile.
    async function awaited(promise) {
      waits++;
      if (hardware) {
        nudged = performance.now();
        nudgeUntil = nudged + NUDGE_FOR;
        if (!nudging) post(nudge);
        nudging = true;
      }
      try {
        return await promise;
      } finally {
        waits--;
      }
    }

    async function start() {
      const adapter = await findAdapter();
      const requiredLimits = {};
      for (const name of LIMITS) {
        if (adapter.limits[name] !== undefined) requiredLimits[name] = adapter.limits[name];
      }
      const requiredFeatures = FEATURES.filter((f) => adapter.features.has(f));
      let made;
      try {
        made = await adapter.requestDevice({ label: "pagelight", requiredFeatures, requiredLimits });
      } catch (e) {
        throw new Refusal(CODE.noAdapter, "the browser refused a device: " + text(e));
      }
      if (closed) {
        made.destroy();
        return;
      }
      device = made;
      queue = device.queue;
      handle.facts = describe(adapter, device);
      hardware = !handle.facts.software;
      device.lost.then((info) => notify(LOST_TOKEN, CODE.lost, 0, info.message || info.reason || "unknown reason"));
      device.addEventListener("uncapturederror", ({ error }) => {
        fault ??= { error, at: 0 };
      });
      notify(0, CODE.ok, 0, "");
    }

    function layoutOf(kinds) {
      let layout = layouts.get(kinds);
      if (!layout) {
        const group = device.createBindGroupLayout({
          label: kinds,
          entries: Array.from(kinds, (k, i) => ({ binding: i, visibility: COMPUTE, buffer: { type: BINDING[k] } })),
        });
        layout = { group, pipeline: device.createPipelineLayout({ label: kinds, bindGroupLayouts: [group] }) };
        layouts.set(kinds, layout);
      }
      return layout;
    }

    function newBuffer(token, label, size, usage) {
      live.add(token);
      let buffer = null;
      let thrown = null;
      device.pushErrorScope("validation");
      device.pushErrorScope("out-of-memory");
      try {
        buffer = device.createBuffer({ label, size, usage });
      } catch (e) {
        thrown = e;
      }
      Promise.all([device.popErrorScope(), device.popErrorScope()]).then(
        ([memory, invalid]) => {
          const e = memory ?? invalid ?? thrown;
          if (e || !live.has(token)) {
            buffer?.destroy();
            finish(token, codeOf(e), 0, text(e));
            return;
          }
          finish(token, CODE.ok, buffers.put({ buffer, usedBy: 0, reading: null }), "");
        },
        (e) => finish(token, CODE.invalid, 0, text(e)),
      );
    }

    function releaseBuffer(id) {
      buffers.take(id)?.buffer.destroy(); // work already submitted keeps its memory
    }

    function growWrite(size) {
      if (writeScratch.length < size) writeScratch = new Uint8Array(size);
      return writeScratch;
    }

    function growRead(size) {
      if (readScratch.length < size) readScratch = new Uint8Array(size);
      return readScratch;
    }

    // growSequence gives the bytes of the list of programs, with room for at least count of them.
    function growSequence(count) {
      if (sequence.length < count) sequence = new Int32Array(count);
      return new Uint8Array(sequence.buffer);
    }

    function writeBuffer(id, offset, size) {
      queue.writeBuffer(buffers.get(id).buffer, offset, writeScratch, 0, size);
    }

    function writeBlob(id, offset, blob, blobOffset, size) {
      queue.writeBuffer(buffers.get(id).buffer, offset, blobTable.get(blob), blobOffset, size);
    }

    async function newPipeline(token, kinds, label, entryPoint, code) {
      live.add(token);
      device.pushErrorScope("validation"); // the module's error; the pipeline's own comes as a rejection
      const module = device.createShaderModule({ label, code });
      const layout = layoutOf(kinds).pipeline;
      const made = device.createComputePipelineAsync({ label, layout, compute: { module, entryPoint } });
      const scope = device.popErrorScope();
      try {
        const pipeline = await made;
        await scope;
        if (live.has(token)) finish(token, CODE.ok, pipelines.put(pipeline), "");
      } catch (e) {
        const lines = [];
        try {
          for (const m of (await module.getCompilationInfo()).messages) {
            if (m.type === "error") lines.push(`${m.lineNum}:${m.linePos}: ${m.message}`);
          }
          await scope;
        } catch {
          // The device went away; the rejection says enough.
        }
        finish(token, codeOf(e), 0, lines.length > 0 ? lines.join("\n") : text(e));
      }
    }

    // Lists of numbers come through the write scratch, as f64.
    const list = (count) => new Float64Array(writeScratch.buffer, 0, count);

    // newBindGroup binds triples (buffer, offset, size).
    function newBindGroup(label, kinds, count) {
      const flat = list(count);
      const entries = [];
      for (let i = 0, b = 0; i < flat.length; i += 3, b++) {
        const { buffer } = buffers.get(flat[i]);
        entries.push({ binding: b, resource: { buffer, offset: flat[i + 1], size: flat[i + 2] } });
      }
      device.pushErrorScope("validation");
      const group = device.createBindGroup({ label, layout: layoutOf(kinds).group, entries });
      popScope();
      return groups.put(group);
    }

    // newProgram takes six numbers a command: [pipeline, bind group, x, y, z, 0] or [0, source, offset, destination, offset, size].
    function newProgram(label, count) {
      const flat = list(count);
      const ops = [];
      const targets = new Set();
      for (let i = 0; i < flat.length; i += 6) {
        const [a, b, c, d, e, f] = flat.subarray(i, i + 6);
        if (a !== 0) {
          ops.push({ pipeline: pipelines.get(a), group: groups.get(b), x: c, y: d, z: e, from: null, to: null, size: 0 });
        } else {
          const to = buffers.get(d);
          targets.add(to);
          ops.push({ pipeline: null, group: null, x: c, y: e, z: 0, from: buffers.get(b).buffer, to: to.buffer, size: f });
        }
      }
      return programs.put({ label, ops, targets: [...targets], dispatches: ops.filter((op) => op.pipeline !== null).length });
    }

    // submit replays the first count programs of the sequence as one submission with one pass per run of dispatches.
    function submit(count) {
      const started = performance.now();
      submitted++;
      device.pushErrorScope("validation");
      const encoder = device.createCommandEncoder();
      let pass = null;
      let pipeline = null;
      let group = null;
      for (let i = 0; i < count; i++) {
        const program = programs.get(sequence[i]);
        for (const op of program.ops) {
          if (op.pipeline !== null) {
            if (pass === null) {
              pass = encoder.beginComputePass();
              pipeline = group = null;
            }
            if (op.pipeline !== pipeline) pass.setPipeline((pipeline = op.pipeline));
            if (op.group !== group) pass.setBindGroup(0, (group = op.group));
            pass.dispatchWorkgroups(op.x, op.y, op.z);
          } else {
            if (pass !== null) {
              pass.end();
              pass = null;
            }
            encoder.copyBufferToBuffer(op.from, op.x, op.to, op.y, op.size);
          }
        }
        for (const target of program.targets) target.usedBy = submitted;
        work.dispatches += program.dispatches;
      }
      if (pass !== null) pass.end();
      queue.submit([encoder.finish()]);
      popScope();
      work.submits++;
      work.encodeMS += performance.now() - started;
    }

    // read begins to map a range; once notified, takeRead copies it. What is submitted from now on is not waited for. mapAsync
    // waits for the submissions that use the buffer; a buffer that the last submission did not write has to wait for that one
    // by other means.
    async function read(token, id, offset, size) {
      const entry = buffers.get(id);
      const { buffer, usedBy } = entry;
      const began = submitted;
      const start = offset - (offset % 8);
      const length = Math.min(Math.ceil((offset + size - start) / 4) * 4, buffer.size - start);
      const reading = { token, start, length, skip: offset - start, size };
      entry.reading = reading; // whoever gives it up takes it away, so a settled promise sees that nobody waits
      device.pushErrorScope("validation");
      const mapped = buffer.mapAsync(READ, start, length);
      popScope();
      const scope = lastScope;
      let rejection = null;
      try {
        await awaited(Promise.all([mapped, scope, usedBy === began ? null : queue.onSubmittedWorkDone()]));
      } catch (e) {
        rejection = e;
        await scope;
      }
      if (entry.reading !== reading) return; // cancelRead has unmapped it
      const e = takeFault(began) ?? rejection;
      if (e) {
        entry.reading = null;
        buffer.unmap();
      }
      notify(token, e ? codeOf(e) : CODE.ok, 0, e ? text(e) : "");
    }

    // takeRead ends a read that was notified: its bytes come to the beginning of the read scratch.
    function takeRead(id) {
      const { buffer, reading } = buffers.get(id);
      buffers.get(id).reading = null;
      work.readBacks++;
      work.bytesRead += reading.size;
      readScratch.set(new Uint8Array(buffer.getMappedRange(reading.start, reading.length), reading.skip, reading.size));
      buffer.unmap();
    }

    // cancelRead gives a read up: unmapping ends a mapping that is still under way.
    function cancelRead(id) {
      const entry = buffers.get(id);
      if (!entry?.reading) return;
      entry.reading = null;
      entry.buffer.unmap();
    }

    // timed runs a program once, each dispatch in a pass of its own that repeats it times[i] times, and gives the passes' times in
    // ns; copies take none. A buffer of the query set's size is made for the while.
    async function timed(ops, times) {
      const total = new Array(ops.length).fill(0);
      for (let first = 0; first < ops.length; first += MAX_PROFILED) {
        const part = ops.slice(first, first + MAX_PROFILED);
        const size = 16 * part.length; // two times of 8 bytes each
        const set = device.createQuerySet({ type: "timestamp", count: 2 * part.length });
        const resolved = device.createBuffer({ label: "timestamps", size, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
        const back = device.createBuffer({ label: "timestamps to read", size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
        try {
          const encoder = device.createCommandEncoder();
          part.forEach((op, i) => {
            if (op.pipeline === null) {
              encoder.copyBufferToBuffer(op.from, op.x, op.to, op.y, op.size);
              return;
            }
            const timestampWrites = { querySet: set, beginningOfPassWriteIndex: 2 * i, endOfPassWriteIndex: 2 * i + 1 };
            const pass = encoder.beginComputePass({ timestampWrites });
            pass.setPipeline(op.pipeline);
            pass.setBindGroup(0, op.group);
            for (let n = times[first + i]; n > 0; n--) pass.dispatchWorkgroups(op.x, op.y, op.z);
            pass.end();
          });
          encoder.resolveQuerySet(set, 0, 2 * part.length, resolved, 0);
          encoder.copyBufferToBuffer(resolved, 0, back, 0, size);
          submitted++;
          queue.submit([encoder.finish()]);
          await awaited(back.mapAsync(READ));
          const at = new BigUint64Array(back.getMappedRange());
          part.forEach((op, i) => {
            if (op.pipeline !== null) total[first + i] = Number(at[2 * i + 1] - at[2 * i]);
          });
        } finally {
          set.destroy();
          resolved.destroy();
          back.destroy();
        }
      }
      return total;
    }

    // profile gives the shortest time of each command of a program in ns, as f64 at the beginning of the read scratch.
    async function profile(token, id, repeat) {
      live.add(token);
      try {
        if (!device.features.has("timestamp-query")) throw new Refusal(CODE.noTimestamps, "the browser gives no timestamps");
        const { ops } = programs.get(id);
        const times = ops.map(() => 1);
        device.pushErrorScope("validation");
        await timed(ops, times); // the first run is slower
        let total = await timed(ops, times);
        if (total.every((ns) => ns % CLOCK_STEP === 0)) {
          for (let more = true; more && live.has(token); ) {
            more = false;
            total.forEach((ns, i) => {
              if (ops[i].pipeline === null || ns >= CLOCK_STEPS * CLOCK_STEP || times[i] === MAX_REPEAT) return;
              const factor = (CLOCK_STEPS * CLOCK_STEP) / Math.max(ns, CLOCK_STEP / 2);
              times[i] = Math.min(MAX_REPEAT, Math.ceil(times[i] * Math.min(Math.max(factor, 1.1), 16)));
              more = true;
            });
            if (more) total = await timed(ops, times);
          }
        }
        const best = total.map((ns, i) => ns / times[i]);
        for (let run = 1; run < repeat && live.has(token); run++) {
          (await timed(ops, times)).forEach((ns, i) => (best[i] = Math.min(best[i], ns / times[i])));
        }
        popScope();
        await lastScope;
        if (!live.has(token)) return;
        const e = takeFault(submitted);
        if (!e) readScratch.set(new Uint8Array(Float64Array.from(best).buffer));
        finish(token, e ? codeOf(e) : CODE.ok, 0, e ? text(e) : "");
      } catch (e) {
        finish(token, e.code ?? codeOf(e), 0, text(e));
      }
    }

    async function wait(token) {
      live.add(token);
      const began = submitted;
      try {
        await awaited(Promise.all([queue.onSubmittedWorkDone(), lastScope]));
      } catch (error) {
        fault ??= { error, at: 0 };
      }
      if (!live.has(token)) return;
      const e = takeFault(began);
      finish(token, e ? codeOf(e) : CODE.ok, 0, e ? text(e) : "");
    }

    function close() {
      closed = true;
      live.clear();
      for (const { buffer } of buffers.values()) buffer.destroy();
      device?.destroy();
    }

    const handle = {
      facts: null,
      event: new Uint8Array(event.buffer),
      message: () => eventMessage,
      newBuffer, releaseBuffer, growWrite, growRead, writeBuffer, writeBlob,
      newPipeline, releasePipeline: (id) => void pipelines.take(id),
      newBindGroup, releaseBindGroup: (id) => void groups.take(id),
      newProgram, releaseProgram: (id) => void programs.take(id),
      growSequence, submit, read, takeRead, cancelRead, wait, profile,
      forget: (token) => void live.delete(token),
      close,
      get device() { return device; }, // for tests and debugging
    };
    start().catch((e) => notify(0, e.code ?? CODE.noAdapter, 0, text(e)));
    return handle;
  }

  // Blobs are ArrayBuffers that Go knows by number: a fetched shard goes from here to the GPU without entering the Go heap.
  const blobTable = new Table();
  let blobScratch = new Uint8Array(64 << 10);
  const blobs = {
    put: (buffer) => blobTable.put(buffer),
    release: (id) => void blobTable.take(id),
    // read copies a piece into a scratch that the next read uses again.
    read(id, offset, size) {
      if (blobScratch.length < size) blobScratch = new Uint8Array(size);
      blobScratch.set(new Uint8Array(blobTable.get(id), offset, size));
      return blobScratch;
    },
  };

  // turn calls back in the next turn of the event loop, when what has come in meanwhile had its turn. A timeout would come after
  // 4 ms, and much later where a browser slows the timers of pages that nobody sees.
  const turns = [];
  const channel = new MessageChannel();
  channel.port1.onmessage = () => turns.shift()();
  const turn = (f) => {
    turns.push(f);
    channel.port2.postMessage(null);
  };

  globalThis.pagelightGPU = { open, probe, blobs, turn, work };
})();
