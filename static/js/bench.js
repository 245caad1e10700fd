// The page of measurements (bench.html). Its address drives it: ?model=ID&p=512,2048&n=128&d=0,4096&b=1,8&r=3 fills the form, start=1
// begins at once, and report=1 sends the report to the server that gave the page, which takes it where it was started for that.
// kv, device, gpu_memory, max_model_len and profile=0 are as the flags of "pagelight bench"; prefer=subgroups has kernels take variants of such
// names; tune=1 has variants timed first and takes those that are faster, and globalThis.pagelightTuned is what was found.
// globalThis.pagelightBench is the report so far, for whoever drives the page; done says that it is complete, error what went wrong.
//
// The worker measures with the code of the native program (internal/bench), and the report has its form.
import { $, t, announce, copy, count, el, label, language, locale, onLanguage, rate, setLanguage, translate } from "./ui.js";
import * as settings from "./settings.js";
import { EngineError, TabEngine } from "./channel.js";

const params = new URLSearchParams(location.search);
const themes = ["auto", "light", "dark"];
const usual = { p: "512", n: "128", d: "0", b: "1,8", r: "3" };
const SYNTHETIC = { id: "synthetic:ernie-4.5-0.3b", name: "ERNIE-4.5-0.3B", kind: "synthetic" };
const PHASES = { download: "sDownload", upload: "sUpload", compile: "sCompile", warmup: "sWarmup" };

let models = [];
let said = { text: () => t("benchReady"), problem: false };
let report = null; // of internal/bench
let sent = null; // () => whether the server took the report
let engine = null;
globalThis.pagelightBench = null;

const plain = (n) => n.toLocaleString(locale(), { maximumFractionDigits: 2 });

// say shows a sentence, which text gives in the reader's language whenever it is shown.
function say(text, problem = false) {
  said = { text, problem };
  show();
}

function show() {
  $("#state").textContent = said.text();
  $("#state").dataset.kind = said.problem ? "problem" : "";
  const run = report?.runs[0];
  $("#results").hidden = !run;
  $("#reported").textContent = sent?.() ?? "";
  if (!run) return;
  $("#adapter").textContent = [report.adapter.name, report.adapter.backend, run.model.name, run.model.weights, `KV ${run.kv}`].filter(Boolean).join(" · ");
  $("#check").textContent = checkText(run.check);
  $("#left-out").replaceChildren(...(run.left_out ?? []).map((left) => el("li", { text: leftOutText(left) })));
  $("#speeds").hidden = $("#key").hidden = !run.tests.length;
  $("#lines").replaceChildren(...run.tests.map(({ name, tokens_per_second: speed, latency_ms: latency, stages }) =>
    el("tr", {}, el("th", { scope: "row", text: name }),
      ...[rate(speed.median), `${rate(speed.min)} – ${rate(speed.max)}`, rate(latency), stages ? plain(stages.dispatches) : "", stages ? plain(stages.submits) : ""]
        .map((text) => el("td", { class: "number", text })))));
}

function checkText({ verdict, known_answers: known, source, cases }) {
  const sum = (f) => count(cases.reduce((total, c) => total + f(c), 0));
  const counts = { answers: sum((c) => c.answers), tokens: sum((c) => c.answers * c.compared) };
  switch (verdict) {
    case "passed":
      return known ? t("benchRight", { source, ...counts }) : t("benchAgree", counts);
    case "approximate":
      return t("benchApproximate");
    case "failed":
      return known ? t("benchAgainst", { source, ...counts }) : t("benchAgainstOwn", counts);
  }
  return "";
}

// wrongText names the first wrong token.
function wrongText({ cases }) {
  const { setting, case: name, at = 0, got = 0, want = 0 } = cases.find((c) => c.wrong > 0);
  return t(want < 0 ? "benchNotBest" : "benchWrong", { setting, name, at, got, want });
}

function leftOutText({ name, what, need, have, reason }) {
  const key = { context: "benchNoContext", answers: "benchNoAnswers", blocks: "benchNoBlocks" }[what];
  return key ? t(key, { name, need: count(need), have: count(have) }) : t("benchLeftOut", { name, reason });
}

function doingText({ doing, name, run, runs }) {
  switch (doing) {
    case "device":
      return t("benchDevice");
    case "check":
      return name ? t("benchCheckingPrompt", { name }) : t("benchChecking");
    case "profile":
      return t("benchProfiling", { name });
  }
  return run ? t("benchTesting", { name, run, runs }) : t("benchWarming", { name });
}

// modelOf is the part of a message that says which model.
function modelOf(model) {
  if (model.kind === "synthetic") return { kind: "synthetic", name: model.id.replace(/^synthetic:/, "") };
  return { kind: model.kind, url: model.url };
}

// wanted is the message that asks for a measurement: what form and address say. It throws what is wrong with them.
function wanted() {
  const numbers = (name) => $(`#${name}`).value.split(",").map((v) => v.trim()).filter(Boolean).map((v) => {
    if (!/^\d{1,9}$/.test(v)) throw new RangeError(t("benchNumbers", { given: `${name}=${$(`#${name}`).value}` }));
    return Number(v);
  });
  const model = models.find((m) => m.id === $("#model").value);
  if (!model) throw new RangeError(t("benchNoModel"));
  return {
    type: "bench", command: [location.href], model: modelOf(model),
    options: {
      device: params.get("device") ?? "auto", kv: params.get("kv") ?? "f16", quant: model.kind === "synthetic" ? "q4" : "none",
      gpu_memory: Number(params.get("gpu_memory") ?? 0), max_model_len: Number(params.get("max_model_len") ?? 0),
      prefer: (params.get("prefer") ?? "").split(",").filter(Boolean), tuning: params.get("tune") === "1" ? "auto" : "off",
    },
    tests: {
      n_prompt: numbers("p"), n_gen: numbers("n"), n_depth: numbers("d"), batch: numbers("b"), repetitions: numbers("r")[0] ?? 0,
      no_profile: params.get("profile") === "0",
    },
  };
}

function busy(on) {
  $("#start").disabled = on;
  $("#stop").hidden = !on;
  $("#bar").hidden = !on;
  $("#bar").value = 0;
  for (const field of $("#options").elements) if (field.tagName !== "BUTTON") field.disabled = on;
}

function progress({ phase, done, total, about, doing, test }) {
  if (about) {
    report = globalThis.pagelightBench = about;
  } else if (test) {
    report.runs[0].tests.push(test);
  } else if (doing) {
    $("#bar").value = doing.total ? (doing.done + doing.run / (doing.runs + 1)) / doing.total : 0;
    say(() => doingText(doing));
    return;
  } else {
    $("#bar").value = total > 0 ? done / total : 0;
    say(() => t("benchLoading", { phase: PHASES[phase] ? t(PHASES[phase]) : phase }));
    return;
  }
  show();
}

async function start() {
  report = sent = globalThis.pagelightBench = null;
  $("#copy").hidden = true;
  busy(true);
  try {
    await measure(wanted());
  } catch (error) {
    if (report) report.runs[0].tests = []; // of a run that was not complete
    const stopped = error.code === "cancelled";
    say(() => (stopped ? t("benchStopped") : t("benchFailed", { message: error.message })), !stopped);
    globalThis.pagelightBench = { ...report, error: error.message };
    report = null;
    show();
  }
  engine?.stop();
  engine = null;
  busy(false);
  announce(said.text());
}

async function measure(message) {
  say(() => t("sStarting"));
  engine = new TabEngine();
  const gone = new Promise((_, reject) => {
    for (const event of ["lost", "silent", "broken"]) engine.on(event, (why) => reject(new EngineError({ code: event, message: `${event}: ${why}` })));
  });
  gone.catch(() => {}); // it may come when nobody waits
  if (message.options.tuning === "auto") {
    await Promise.race([engine.load(message.model, message.options, progress), gone]);
    say(() => t("tuneRuns"));
    globalThis.pagelightTuned = await Promise.race([engine.ask({ type: "tune" }), gone]);
  }
  const answer = await Promise.race([engine.ask(message, progress), gone]);
  report = answer.report;
  const { check } = report.runs[0];
  if (answer.wrong) say(() => wrongText(check), true);
  else say(() => t("benchDone"));
  $("#copy").hidden = false;
  if (params.get("report") === "1") await send(report);
  globalThis.pagelightBench = { ...report, done: true, ...(answer.wrong && { error: answer.wrong }) };
}

async function send(whole) {
  const response = await fetch("api/bench", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(whole) }).catch(() => ({}));
  sent = () => (response.ok ? t("benchReported") : t("benchUnreported", { status: response.status ?? t("benchNoServer") }));
  show();
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
$("#stop").addEventListener("click", () => engine?.fail("cancelled", t("benchStopped")));
$("#copy").addEventListener("click", ({ currentTarget }) => copy(JSON.stringify(report, null, 1), currentTarget));
$("#lang").addEventListener("click", () => setLanguage(language() === "zh" ? "en" : "zh"));
$("#theme").addEventListener("click", () => {
  const next = themes[(themes.indexOf(settings.get("theme") ?? "auto") + 1) % themes.length];
  settings.set("theme", next === "auto" ? undefined : next);
  showTheme();
});
for (const name of Object.keys(usual)) $(`#${name}`).value = params.get(name) ?? usual[name];
translate(document);
onLanguage(() => {
  document.title = t("benchPage");
  for (const option of $("#model").options) option.textContent = nameOf(models.find((m) => m.id === option.value));
  showTheme();
  show();
});

function nameOf(model) {
  return model.kind === "synthetic" ? `${model.name} (${t("modelSynthetic")})` : model.name;
}

const list = await fetch("models/index.json").then((r) => (r.ok ? r.json() : null)).catch(() => null);
models = (Array.isArray(list?.models) ? list.models : []).filter((m) => m && typeof m.id === "string" && typeof m.name === "string");
if (!models.some((m) => m.id === SYNTHETIC.id)) models.push(SYNTHETIC);
$("#model").replaceChildren(...models.map((m) => el("option", { value: m.id, text: nameOf(m) })));
$("#model").value = params.get("model") ?? models[0].id;
document.documentElement.dataset.bench = "ready";
if (params.get("start") === "1") start();
