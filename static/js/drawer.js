// The engine drawer: what the engine is doing and what it runs on. It asks for statistics only while it is open.
import { $, el, t, sentences, bytes, count, rate, duration, median, copy, announce, onLanguage } from "./ui.js";
import * as settings from "./settings.js";
import { speedLine, memoryBar, waterfall, BlockMap } from "./charts.js";
import { requestAsCode, report } from "./code.js";

const POLL_RUNNING = 250; // ms
const POLL_IDLE = 2000;

export class Drawer {
  #root = $("#drawer");
  #toggle = $("#drawer-toggle");
  #session;
  #chat;
  #stats = null;
  #asking = false;
  #timer = 0;
  #frame = 0;
  #blocks;
  #test = null; // {running} or {results, ms} of the last self-test
  #tuned = null; // {running}, {choices, kept} or {error} of the last measuring that was asked for
  #language = "curl";

  constructor(session, chat) {
    this.#session = session;
    this.#chat = chat;
    this.#blocks = new BlockMap((id) => (this.#chat.running?.sequence === id ? t("seqThis") : ""));
    this.#toggle.addEventListener("click", () => this.toggle());
    $("#drawer-close").addEventListener("click", () => this.toggle(false));
    $("#adapter-chip").addEventListener("click", () => this.show("#d-adapter"));
    this.#root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      this.toggle(false);
    });
    for (const section of this.#root.querySelectorAll("details")) section.addEventListener("toggle", () => this.#later());
    this.#buildSampling();
    this.#buildMemory();
    $("#self-test").addEventListener("click", () => this.#selfTest());
    $("#tune").addEventListener("click", () => this.#tune());
    $("#tune-switch").addEventListener("click", () => settings.set("tuning", settings.get("tuning") ? undefined : "off"));
    $("#copy-report").addEventListener("click", (event) => copy(this.report(), event.currentTarget));
    $("#copy-code").addEventListener("click", (event) => copy($("#code").textContent, event.currentTarget));
    for (const choice of this.#root.querySelectorAll("[name=code-language]"))
      choice.addEventListener("change", () => {
        this.#language = choice.value;
        this.#later();
      });
    session.on("change", () => this.#later());
    session.on("progress", () => this.#later());
    session.on("ready", () => this.#poll());
    chat.on("message", () => this.#later());
    chat.on("state", () => this.#poll());
    settings.onChange(() => this.#later());
    new ResizeObserver(() => this.#later()).observe(this.#root);
    onLanguage(() => this.#later());
    this.toggle(document.documentElement.dataset.drawer === "open", false);
  }

  get open() {
    return document.documentElement.dataset.drawer === "open";
  }

  toggle(open = !this.open, focus = true) {
    const root = document.documentElement;
    if (open) root.dataset.drawer = "open";
    else delete root.dataset.drawer;
    this.#root.hidden = !open;
    this.#toggle.setAttribute("aria-expanded", String(open));
    if (focus) {
      settings.set("drawer", open || undefined);
      (open ? $("#drawer-close") : this.#toggle).focus();
    }
    this.#poll();
    this.#later();
  }

  // show opens the drawer at one of its sections.
  show(selector) {
    this.toggle(true);
    const section = $(selector);
    section.open = true;
    this.#show();
    $("summary", section).focus({ preventScroll: true });
    section.scrollIntoView({ block: "start" });
  }

  report() {
    return report(this.#session, this.#stats, this.#test?.results);
  }

  async #poll() {
    clearTimeout(this.#timer);
    if (!this.open || this.#session.phase !== "ready" || document.hidden) {
      if (this.open) this.#timer = setTimeout(() => this.#poll(), POLL_IDLE);
      return;
    }
    if (!this.#asking) {
      this.#asking = true;
      const { engine } = this.#session;
      try {
        const stats = await this.#session.stats();
        this.#stats = engine === this.#session.engine ? stats : null;
      } catch {
        this.#stats = null; // the engine went away; the page says so elsewhere
      }
      this.#asking = false;
      this.#later();
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#poll(), this.#chat.running || this.#stats?.running ? POLL_RUNNING : POLL_IDLE);
  }

  #later() {
    if (this.open) this.#frame ||= requestAnimationFrame(() => this.#show());
  }

  #show() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const { info, phase } = this.#session;
    const ready = phase === "ready" && info;
    const shown = (id) => $(id).open;
    for (const node of this.#root.querySelectorAll("[data-ready]")) node.hidden = !ready;
    for (const node of this.#root.querySelectorAll("[data-unready]")) node.hidden = Boolean(ready);
    if (shown("#d-speed")) this.#showSpeed();
    if (ready && shown("#d-memory")) this.#showMemory(info);
    if (ready && shown("#d-blocks")) this.#showBlocks(info);
    if (shown("#d-loading")) this.#showLoading();
    if (shown("#d-adapter")) this.#showAdapter();
    if (shown("#d-code")) $("#code").textContent = requestAsCode(this.#language, this.#chat.body(this.#chat.messages.at(-1) ?? null, false), this.#session);
    $("#code-start").hidden = Boolean(this.#session.server.models);
  }

  #showSpeed() {
    const { running } = this.#chat;
    const last = running?.answer ?? this.#chat.messages.findLast((message) => message.tokens);
    const { speeds } = this.#chat;
    speedLine($("#speed-line"), speeds);
    const now = running ? (speeds.at(-1) ?? 0) : (last?.speed ?? 0);
    $("#speed-now").textContent = now ? t("perSecond", { n: rate(now) }) : "–";
    $("#speed-median").textContent = speeds.length > 1 ? t("median", { n: rate(median(speeds)) }) : "";
    const stats = this.#stats;
    table($("#speed-facts"), [
      [t("prefill"), stats?.prefill_tokens_per_second ? t("perSecond", { n: rate(stats.prefill_tokens_per_second) }) : "–"],
      [t("firstToken"), last?.first ? duration(last.first) : "–"],
      [t("dispatches"), stats?.dispatches_per_token ? count(stats.dispatches_per_token) : "–"],
    ]);
  }

  #showMemory(info) {
    const { planned, budget, partial } = memoryBar($("#memory-bar"), $("#memory-legend"), info, this.#stats?.blocks_used ?? 0);
    const words = sentences(t("memoryTotal", { used: bytes(planned, true), max: bytes(budget, true) }), partial && t("memoryPart"));
    $("#memory-total").textContent = words;
    $("#memory-bar").setAttribute("aria-label", words);
  }

  #showBlocks(info) {
    const sequences = (this.#stats?.sequences ?? []).filter((sequence) => sequence.blocks?.length);
    const words = t("blocksSummary", { used: count(this.#stats?.blocks_used ?? 0), total: count(info.num_blocks), size: info.block_size });
    $("#blocks-summary").textContent = sentences(words, this.#blocks.group > 1 && t("blocksScaled", { n: this.#blocks.group }));
    this.#blocks.draw(info, sequences);
    $("#blocks").setAttribute("aria-label", words);
    $("#blocks-legend").replaceChildren(...sequences.slice(0, 8).map((sequence) => {
      const swatch = el("i", { class: "swatch" });
      swatch.style.background = `var(${this.#blocks.colour(sequence)})`;
      const mine = this.#chat.running?.sequence === sequence.id;
      return el("li", {}, swatch, el("span", { text: mine ? t("seqThis") : t("seqOther", { id: sequence.id }) }),
        el("b", { text: t("seqLine", { tokens: count(sequence.tokens), blocks: count(sequence.blocks.length) }) }));
    }));
    $("#blocks-idle").hidden = sequences.length > 0;
  }

  #showLoading() {
    const { waterfall: rows, place } = this.#session;
    $("#load-none").hidden = rows.length > 0;
    $("#load-none").textContent = t(place === "server" ? "loadServer" : "loadNone");
    $("#load-total").hidden = !rows.length;
    const total = waterfall($("#waterfall"), rows);
    $("#load-total").textContent = t("loadTotal", { time: duration(total) });
  }

  #showAdapter() {
    const { info, adapter, place } = this.#session;
    const shown = info?.adapter ?? (place === "tab" ? adapter?.info : null);
    const limits = info?.limits ?? (place === "tab" ? adapter?.limits : null);
    table($("#adapter-facts"), !shown ? [] : [
      [t("aName"), shown.name],
      [t("aKind"), t(`kind_${shown.kind}`)],
      [t("aBackend"), [shown.backend, shown.driver, shown.vendor].filter(Boolean).join(", ")],
      [t("aFeatures"), shown.features?.join(", ") || t("aNone")],
      ...(info ? [
        [t("aModel"), `${info.model} (${info.architecture})`],
        [t("aWeights"), info.weights],
        [t("aCache"), t("aCacheValue", { type: info.kv_type, n: count(info.num_blocks), size: info.block_size })],
        [t("aContext"), count(info.max_model_len)],
      ] : []),
    ]);
    table($("#adapter-limits"), !limits ? [] : [
      [t("lBuffer"), bytes(limits.max_buffer_size, true)],
      [t("lBinding"), bytes(limits.max_storage_binding, true)],
      [t("lStorage"), count(limits.max_storage_buffers)],
      [t("lWorkgroup"), bytes(limits.max_workgroup_memory, true)],
      [t("lInvocations"), count(limits.max_invocations)],
    ]);
    $("#limits-title").hidden = !limits;
    const kernels = info?.kernels ?? [];
    $("#kernels-title").hidden = !kernels.length;
    $("#kernels-title").textContent = t("kernels", { n: kernels.length });
    $("#kernels").textContent = kernels.join(" ");
    const notes = info?.notes ?? [];
    $("#engine-notes").replaceChildren(...notes.map((text) => el("li", { text })));
    this.#showTuning(shown);
    const testable = place === "tab" && this.#session.phase === "ready" && !this.#chat.running && !this.#test?.running;
    $("#self-test").disabled = !testable;
    $("#self-test-result").textContent = this.#testWords(place);
    const failed = this.#test?.results?.filter((result) => !result.ok) ?? [];
    $("#self-test-failed").replaceChildren(...failed.slice(0, 20).map((result) => el("li", { text: `${result.name}: ${result.message}` })));
  }

  #showTuning(adapter) {
    const off = settings.get("tuning") === "off";
    const gpu = this.#session.place === "tab" && adapter?.kind === "gpu";
    $("#tune-result").textContent = this.#tuneWords(gpu, off);
    $("#tune").disabled = !gpu || off || this.#session.phase !== "ready" || Boolean(this.#tuned?.running);
    $("#tune-switch").disabled = !gpu;
    $("#tune-switch").textContent = t(off ? "tuneOn" : "tuneOff");
  }

  #tuneWords(gpu, off) {
    if (!gpu) return t("tuneNoGPU");
    if (off) return t("tuneIsOff");
    if (!this.#tuned) return t("tuneWhat");
    if (this.#tuned.running) return t("tuneRuns");
    if (this.#tuned.error) return this.#tuned.error;
    const { choices, kept } = this.#tuned;
    const other = choices.filter((choice) => choice.chosen !== choice.default).length;
    return t(kept ? "tuneDone" : "tuneUnkept", { n: choices.length, other });
  }

  async #tune() {
    this.#tuned = { running: true };
    this.#later();
    try {
      this.#tuned = await this.#session.tune();
    } catch (error) {
      this.#tuned = { error: error.message };
    }
    announce(this.#tuneWords(true, false));
    this.#later();
  }

  #testWords(place) {
    if (place !== "tab") return t("selfTestTabOnly");
    if (!this.#test) return t("selfTestWhat");
    if (this.#test.running) return t("selfTestRuns");
    if (this.#test.error) return this.#test.error;
    const { results, ms } = this.#test;
    const bad = results.filter((result) => !result.ok).length;
    return bad ? t("selfTestBad", { bad, n: results.length }) : t("selfTestOk", { n: results.length, time: duration(ms) });
  }

  async #selfTest() {
    const began = performance.now();
    this.#test = { running: true };
    this.#later();
    try {
      this.#test = { results: await this.#session.selfTest(), ms: performance.now() - began };
    } catch (error) {
      this.#test = { error: error.message };
    }
    announce(this.#testWords("tab"));
    this.#later();
  }

  #buildSampling() {
    const system = $("#system");
    system.value = settings.get("system") ?? "";
    system.addEventListener("input", () => settings.set("system", system.value));
    const fields = settings.sampling.map((field) => numberField(field));
    $("#sampling").replaceChildren(...fields.map((field) => field.node));
    $("#reset-system").addEventListener("click", () => {
      system.value = "";
      settings.set("system", "");
      system.focus();
    });
    $("#reset-all").addEventListener("click", () => {
      system.value = "";
      settings.set("system", "");
      for (const field of fields) field.reset();
    });
    settings.onChange((key) => key === "system" && ($("#reset-system").disabled = !settings.get("system")));
    $("#reset-system").disabled = !settings.get("system");
  }

  #buildMemory() {
    const fields = [
      { key: "gpu_memory", label: "budget", what: "budgetWhat", min: 16, max: 1048576, step: 1, empty: "modelDefault" },
      { key: "max_model_len", label: "maxContext", what: "maxContextWhat", min: 32, max: 1048576, step: 1, empty: "modelDefault" },
    ].map((field) => numberField(field));
    $("#memory-fields").replaceChildren(...fields.map((field) => field.node));
    $("#apply-memory").addEventListener("click", () => this.#session.load());
    const show = () => ($("#apply-memory").disabled = this.#session.place !== "tab" || !this.#session.model || Boolean(this.#chat.running));
    this.#session.on("change", show);
    this.#chat.on("state", show);
  }
}

// numberField is a number with its explanation and Reset; empty means the default. A value out of range is not stored.
function numberField({ key, label, what, min, max, step, empty }) {
  const id = `f-${key}`;
  const input = el("input", { id, type: "number", inputmode: "decimal", min, max, step: step === 1 ? 1 : "any", "aria-describedby": `${id}-what`, "data-t-placeholder": empty });
  const reset = el("button", { type: "button", class: "quiet", "aria-describedby": `${id}-label`, "data-t": "reset" });
  const show = () => (reset.disabled = input.value === "" && !input.validity.badInput);
  input.value = settings.get(key) ?? "";
  input.addEventListener("input", () => {
    const good = input.value === "" ? !input.validity.badInput : input.checkValidity();
    input.setAttribute("aria-invalid", String(!good));
    if (good) settings.set(key, input.value === "" ? undefined : Number(input.value));
    show();
  });
  const clear = () => {
    input.value = "";
    input.removeAttribute("aria-invalid");
    settings.set(key, undefined);
    show();
  };
  reset.addEventListener("click", () => {
    clear();
    input.focus();
  });
  show();
  const node = el("div", { class: "field" },
    el("label", { for: id, id: `${id}-label`, "data-t": label }), input, reset,
    el("p", { id: `${id}-what`, "data-t": what }));
  return { node, reset: clear };
}

// table fills a description list.
function table(root, rows) {
  root.replaceChildren(...rows.map(([term, value]) => el("div", {}, el("dt", { text: term }), el("dd", { text: value }))));
}
