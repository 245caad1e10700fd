// What the page says about the engine: the status line above the message box, and one box for each state that needs a
// sentence and a next step. Both are computed from the session; a box stays the same element while its text changes.
import { $, t, sentences, bytes, part, duration, rate, count, announce, copy, onLanguage } from "./ui.js";
import * as settings from "./settings.js";
import { stateBox } from "./messages.js";

const STEPS = { checking: "sChecking", starting: "sStarting", connecting: "sConnecting", download: "sDownload", upload: "sUpload", compile: "sCompile", warmup: "sWarmup" };
const LOSSES_OFTEN = 3;

export class States {
  #session;
  #chat;
  #open; // {models(), settings(), report(), reload(), use(place)}
  #boxes = new Map(); // kind -> {node, key}
  #dismissed = new Set();
  #asked = false; // whether the reader wants to know why there is no server
  #said = "";
  #frame = 0;

  constructor(session, chat, open) {
    this.#session = session;
    this.#chat = chat;
    this.#open = open;
    const later = () => (this.#frame ||= requestAnimationFrame(() => this.#show()));
    session.on("change", later);
    session.on("progress", later);
    chat.on("state", later);
    chat.on("finished", later);
    onLanguage(later);
  }

  // askServer says why the server cannot be used.
  askServer() {
    this.#asked = true;
    this.#dismissed.delete("no-server");
    this.#show();
  }

  #show() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#showStatus();
    this.#showBoxes();
  }

  #showStatus() {
    const session = this.#session;
    const { phase, step, progress } = session;
    const running = Boolean(this.#chat.running);
    const state = running ? "running" : phase;
    document.documentElement.dataset.state = state;
    const words = t({ running: "sRunning", ready: "sReady", error: "sError", idle: "sIdle" }[state] ?? STEPS[step] ?? "sStarting");
    let more = "";
    if (phase === "loading" && progress) {
      const counted = progress.phase === "compile" || progress.phase === "warmup";
      if (progress.total > 0) more = counted ? t("sOf", { done: count(progress.done), total: count(progress.total) }) : part(progress.done, progress.total);
      if (progress.left > 1000) more += `${more && " · "}${t("sLeft", { time: duration(progress.left) })}`;
    } else if (phase === "ready") {
      more = [session.modelName, adapterName(session)].filter(Boolean).join(" · ");
    }
    $("#status-text").textContent = words;
    $("#status-more").textContent = more;
    const bar = $("#progress");
    bar.hidden = phase !== "loading";
    if (progress?.total > 0) {
      bar.max = progress.total;
      bar.value = progress.done;
    } else {
      bar.removeAttribute("value");
    }
    bar.setAttribute("aria-label", words);
    const loading = phase === "loading" && session.place === "tab";
    $("#cancel-load").hidden = !loading;
    $("#load").hidden = phase !== "idle";
    $("#load span").textContent = session.model?.bytes ? t("loadSize", { size: bytes(session.model.bytes) }) : t("load");
    // Each word of the status line is told once; the numbers are not.
    if (words !== this.#said && !running) announce(words);
    this.#said = words;
  }

  #showBoxes() {
    const root = $("#states");
    const wanted = this.#states().filter((state) => !this.#dismissed.has(state.kind));
    for (const [kind, box] of this.#boxes) {
      if (wanted.some((state) => state.kind === kind)) continue;
      box.node.remove();
      this.#boxes.delete(kind);
    }
    for (const state of wanted) {
      const key = JSON.stringify([state.severity, state.offers.map((offer) => offer.text), document.documentElement.lang]);
      const box = this.#boxes.get(state.kind);
      if (box?.key === key) {
        const sentence = $("p", box.node);
        if (sentence.textContent !== state.text) sentence.textContent = state.text;
        continue;
      }
      const dismiss = state.severity === "hint" ? () => this.#dismiss(state) : null;
      const node = stateBox(state.kind, state.severity, state.text, state.offers, dismiss);
      if (box) box.node.replaceWith(node);
      else root.append(node);
      if (!box) announce(state.text);
      this.#boxes.set(state.kind, { node, key });
    }
  }

  #dismiss(state) {
    this.#dismissed.add(state.kind);
    if (state.kind === "silent") {
      this.#dismissed.delete("silent"); // the next one is news again
      this.#session.knows("silent");
    }
    this.#show();
    $("#input").focus();
  }

  // states lists what has to be said now, the most pressing first.
  #states() {
    const session = this.#session;
    const list = [];
    const say = (kind, severity, text, ...offers) => list.push({ kind, severity, text, offers: offers.filter(Boolean) });
    const offer = (key, run) => ({ text: t(key), run });
    const server = session.server.models && session.place === "tab" && offer("useServer", () => this.#open.use("server"));
    const https = location.protocol === "http:" && { text: t("openHttps", { url: secureURL() }), run: () => location.assign(secureURL()) };
    const retry = offer("tryAgain", () => session.load());
    const models = session.models.length > 1 && offer("chooseModel", this.#open.models);
    const other = offer("chooseModel", this.#open.models);
    const { error } = session;
    if (session.phase === "error") {
      const name = session.model?.name ?? "";
      const { need, have, file } = error.detail ?? {};
      const details = error.message && t("brokenExpected", { message: error.message });
      const cpu = offer("useCpu", () => session.load("cpu"));
      const cases = {
        server_gone: () => say("server-gone", "problem",
          session.server.retryIn > 0 ? t("serverGone", { n: session.server.retryIn }) : t("serverTrying"),
          offer("useTab", () => session.use("tab")), offer("retryNow", () => session.retryNow())),
        no_models: () => say("no-models", "problem", t("noModels"), server, offer("tryAgain", () => session.start())),
        no_webgpu: () => say("no-webgpu", "problem", t("noWebgpu"), server, cpu),
        insecure_origin: () => say("insecure", "problem", t("insecure"), https, server, cpu),
        no_adapter: () => say("no-adapter", "problem", t("noAdapter"), server, cpu),
        not_enough_memory: () => say("not-enough-memory", "problem",
          sentences(need && have ? t("noMemory", { name, need: bytes(need, true), have: bytes(have, true) }) : t("noMemoryUnknown", { name }), t("noMemoryNext")),
          models, offer("memorySettings", this.#open.settings), server),
        broken_file: () => say("broken-file", "problem",
          sentences(t("broken", { file: file ?? "" }), details),
          offer("fetchAgain", () => session.load()), models),
        not_a_model: () => say("not-a-model", "problem", t("notAModel", { file: file ?? "" }), other, server),
        bad_model: () => say("bad-model", "problem", t("badModel", { message: error.message }), other, server),
        file_missing: () => say("file-missing", "problem", sentences(t("fileMissing", { file: file ?? "" }), details), retry, other),
        file_refused: () => say("file-refused", "problem", sentences(t("fileRefused", { file: file ?? "" }), details), retry, other),
        file_changed: () => say("file-changed", "problem", sentences(t("fileChanged", { file: file ?? "" }), details), other),
        no_ranges: () => say("no-ranges", "problem", sentences(t("noRanges", { file: file ?? "" }), t("downloadAndOpen")), other),
        unreachable: () => say("unreachable", "problem", sentences(t("unreachable", { file: file ?? "" }), t("downloadAndOpen")), retry, other),
        network_failed: () => say("network-failed", "problem", sentences(t("networkFailed", { file: file ?? "" }), details), retry, other),
        device_lost: () => say("device-lost", "problem",
          sentences(t("lost"), session.losses >= LOSSES_OFTEN && t("lostOften", { n: session.losses })),
          this.#chat.messages.at(-1)?.error?.code === "device_lost" && offer("reloadRegenerate", () => this.#open.reload()), offer("reload", () => session.load()),
          session.losses >= LOSSES_OFTEN && { text: t("copyReport"), run: (pressed) => copy(this.#open.report(), pressed) }, server),
        worker_broken: () => say("engine-broken", "problem", t("noEngine", { message: error.message }), retry, server),
      };
      (cases[error.code] ?? (() => say("load-failed", "problem", t("loadFailed", { message: error.message }), retry, models, server)))();
    }
    if (session.silentFor && session.place === "tab") say("silent", "hint", t("silent", { n: session.silentFor }));
    if (session.phase === "ready" && session.place === "tab") {
      const { info } = session;
      const measured = settings.speedOf(info.adapter.name, info.model);
      if (info.synthetic) say("synthetic", "note", t("synthetic"));
      if (info.adapter.kind === "software") {
        say("software", "hint", measured ? t("softwareMeasured", { n: rate(measured) }) : t("softwareState"), server);
      } else if (info.adapter.kind === "cpu" && session.adapter?.available === false) {
        const { reason } = session.adapter;
        const words = { "no-webgpu": "noWebgpuCpu", insecure: "insecureCpu", "no-adapter": "noAdapterCpu" }[reason];
        const speed = measured && t("measured", { n: rate(measured) });
        if (words) say(reason, "hint", sentences(t(words), speed), reason === "insecure" && https, server);
      }
    } else if (session.phase === "ready" && session.info.synthetic) {
      say("synthetic", "note", t("synthetic"));
    }
    if (!this.#chat.kept) say("not-kept", "hint", t("notKept"));
    if (this.#asked) {
      const reason = session.server.reason === "key" ? "serverKey" : "serverNone";
      list.push({ kind: "no-server", severity: "hint", text: t(reason), offers: [] });
    }
    return list;
  }
}

const secureURL = () => `https://${location.host}${location.pathname}`;

// adapterName is the short name for the chip and the status line.
export function adapterName(session) {
  const { phase, info, adapter, place } = session;
  const shown = phase === "ready" ? info.adapter : place === "tab" && adapter?.available ? adapter.info : null;
  if (!shown) return "";
  if (shown.kind === "cpu") return "CPU";
  if (shown.kind === "software") return t("software");
  return shown.name;
}
