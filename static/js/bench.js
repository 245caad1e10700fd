// The page of measurements (bench.html). Its address drives it: ?model=ID&p=512,2048&n=128&d=0,4096&b=1,8&r=3 fills the form,
// start=1 begins at once, and report=1 sends the report to the server that gave the page, which takes it where it was started
// for that. prefer=subgroups has kernels take variants of such names. globalThis.pagelightBench is the report so far, for whoever drives the page.
import { $, t, announce, copy, count, el, label, language, onLanguage, rate, setLanguage, translate } from "./ui.js";
import * as settings from "./settings.js";
import { EngineError, TabEngine } from "./channel.js";
import { Measurement, needs, optionsOf } from "./measure.js";

const params = new URLSearchParams(location.search);
const themes = ["auto", "light", "dark"];
const SYNTHETIC = { id: "synthetic:ernie-4.5-0.3b", name: "ERNIE-4.5-0.3B", kind: "synthetic" };

let models = [];
let state = { key: "benchReady", values: {}, problem: false };
let report = null;
let measurement = null;
let engine = null;
globalThis.pagelightBench = null;

const plain = (n) => n.toLocaleString(language() === "zh" ? "zh-CN" : "en", { maximumFractionDigits: 2 });

function say(key, values = {}, problem = false) {
  state = { key, values, problem };
  show();
}

function show() {
  const node = $("#state");
  node.textContent = t(state.key, state.values);
  node.dataset.kind = state.problem ? "problem" : "";
  const run = report?.runs[0];
  $("#results").hidden = !run;
  if (!run) return;
  $("#adapter").textContent = [report.adapter.name, report.adapter.backend, run.model.name, run.model.weights, `KV ${run.kv}`].filter(Boolean).join(" · ");
  $("#check").textContent = checkText(run.check);
  $("#lines").replaceChildren(...run.tests.map(({ name, tokens_per_second: speed, latency_ms: latency, stages }) =>
    el("tr", {}, el("th", { scope: "row", text: name }),
      ...[rate(speed.median), `${rate(speed.min)} – ${rate(speed.max)}`, plain(latency), plain(stages.dispatches), plain(stages.submits)].map((text) => el("td", { class: "number", text })))));
}

function checkText({ verdict, source, cases }) {
  if (verdict === "approximate") return t("benchApproximate");
  if (verdict === "passed") return t("benchRight", { source, n: count(cases.length) });
  return t("benchWrong", { cases: cases.filter((c) => c.wrong).map((c) => c.case).join(", ") });
}

// forWorker is the part of the load message that says which model.
function forWorker(model) {
  if (model.kind === "synthetic") return { kind: "synthetic", name: model.id.replace(/^synthetic:/, "") };
  return { kind: model.kind, url: model.url };
}

function busy(on) {
  $("#start").disabled = on;
  $("#stop").hidden = !on;
  $("#bar").hidden = !on;
  $("#bar").value = 0;
  for (const field of $("#options").elements) if (field.tagName !== "BUTTON") field.disabled = on;
}

function tell(key, values) {
  if (values.total) $("#bar").value = (values.done + (values.runs ? values.run / (values.runs + 1) : 0)) / values.total;
  say(key, values);
}

async function start() {
  const fields = new URLSearchParams(new FormData($("#options")));
  for (const name of ["kv", "device"]) if (params.has(name)) fields.set(name, params.get(name));
  const model = models.find((m) => m.id === fields.get("model"));
  report = globalThis.pagelightBench = null;
  $("#copy").hidden = true;
  $("#reported").textContent = "";
  busy(true);
  try {
    if (!model) throw new RangeError("model");
    await measure(model, optionsOf(fields));
    say("benchDone");
  } catch (error) {
    if (error.name === "AbortError" || error.code === "cancelled") say("benchStopped");
    else say("benchFailed", { message: error.message }, true);
    if (globalThis.pagelightBench) globalThis.pagelightBench.error = error.message;
    else globalThis.pagelightBench = { error: error.message };
  }
  engine?.stop();
  engine = measurement = null;
  busy(false);
  announce(t(state.key, state.values));
}

async function measure(model, wanted) {
  const { options, kv, device } = wanted;
  const { length, seqs } = needs(options);
  const began = performance.now();
  say("benchLoading", { phase: "" });
  engine = new TabEngine();
  const gone = new Promise((_, reject) => {
    for (const event of ["lost", "silent", "broken"]) engine.on(event, (why) => reject(new EngineError({ code: event, message: `${event}: ${why}` })));
  });
  gone.catch(() => {}); // it may come when nobody waits
  const load = engine.load(forWorker(model), {
    device, kv, quant: model.kind === "synthetic" ? "q4" : "none", gpu_memory: Number(params.get("gpu_memory") ?? 0),
    max_model_len: Number(params.get("max_model_len") ?? 0) || Math.max(length, 192) + 64, max_seqs: seqs, no_prefix_cache: true,
    prefer: (params.get("prefer") ?? "").split(",").filter(Boolean),
  }, ({ phase, done, total }) => {
    $("#bar").value = total > 0 ? done / total : 0;
    say("benchLoading", { phase });
  });
  const { info, vocab } = await Promise.race([load, gone]);
  const run = {
    model: { name: info.model, architecture: info.architecture, parameters: info.parameters, weights: info.weights, weight_bytes: info.weight_bytes },
    kv: info.kv_type, open_seconds: (performance.now() - began) / 1000, kernels: info.kernels, check: null, tests: [], notes: info.notes,
  };
  measurement = new Measurement(engine, info, vocab, wanted, tell);
  const whole = {
    schema: 1, tool: "pagelight bench page", version: params.get("report") === "1" ? await serverVersion() : "",
    date: new Date().toISOString(), command: [location.href], machine: { browser: navigator.userAgent, cores: navigator.hardwareConcurrency },
    adapter: info.adapter, device: { note: "a tab does not measure the device by itself" }, options, runs: [run],
  };
  const known = info.model === SYNTHETIC.id ? await fetch("known-answers.json").then((r) => r.json()) : null;
  run.check = await Promise.race([measurement.check(known), gone]);
  report = globalThis.pagelightBench = whole;
  show();
  if (run.check.verdict !== "failed") {
    run.tests = await Promise.race([measurement.tests((lines) => {
      run.tests = lines;
      show();
    }), gone]);
  }
  whole.done = true;
  $("#copy").hidden = false;
  if (params.get("report") === "1") await send(whole);
}

async function serverVersion() {
  const response = await fetch("version").catch(() => null);
  return response?.ok ? (await response.json()).version ?? "" : "";
}

async function send({ done, ...whole }) {
  const response = await fetch("api/bench", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(whole) });
  $("#reported").textContent = response.ok ? t("benchReported") : t("benchUnreported", { status: response.status });
}

function showTheme() {
  const theme = settings.get("theme") ?? "auto";
  label($("#theme"), t({ auto: "themeAuto", light: "themeLight", dark: "themeDark" }[theme]));
  $("use", $("#theme")).setAttribute("href", `#i-${theme}`);
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

$("#options").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
$("#stop").addEventListener("click", () => {
  measurement?.stop();
  if (!measurement) engine?.fail("cancelled", t("benchStopped"));
});
$("#copy").addEventListener("click", ({ currentTarget }) => copy(JSON.stringify({ ...report, done: undefined }, null, 1), currentTarget));
$("#lang").addEventListener("click", () => setLanguage(language() === "zh" ? "en" : "zh"));
$("#theme").addEventListener("click", () => {
  const next = themes[(themes.indexOf(settings.get("theme") ?? "auto") + 1) % themes.length];
  settings.set("theme", next === "auto" ? undefined : next);
  showTheme();
});
const usual = { p: "512", n: "128", d: "0", b: "1,8", r: "3" };
for (const name of Object.keys(usual)) $(`#${name}`).value = params.get(name) ?? usual[name];
translate(document);
onLanguage(() => {
  showTheme();
  show();
});
const list = await fetch("models/index.json").then((r) => (r.ok ? r.json() : null)).catch(() => null);
models = (Array.isArray(list?.models) ? list.models : []).filter((m) => m && typeof m.id === "string" && typeof m.name === "string");
if (!models.some((m) => m.id === SYNTHETIC.id)) models.push(SYNTHETIC);
$("#model").replaceChildren(...models.map((m) => el("option", { value: m.id, text: m.kind === "synthetic" ? `${m.name} (${t("modelSynthetic")})` : m.name })));
$("#model").value = models.some((m) => m.id === params.get("model")) ? params.get("model") : models[0].id;
document.documentElement.dataset.bench = "ready";
if (params.get("start") === "1") start();
