// The model picker: what this site offers for this tab, or what the server offers, with what each one costs.
import { $, el, button, bytes, large, count, t, onLanguage } from "./ui.js";
import { isOwn } from "./session.js";
import { OwnModels } from "./open.js";
import * as settings from "./settings.js";

export class ModelPicker {
  #dialog = $("#models");
  #list = $("#model-list");
  #session;
  #own;

  constructor(session) {
    this.#session = session;
    this.#own = new OwnModels(session, () => this.#dialog.close());
    $("#model-chip").addEventListener("click", () => this.open());
    $("#models-close").addEventListener("click", () => this.#dialog.close());
    // A click on the backdrop hits the dialog itself; its content fills it.
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
    session.on("change", () => this.#dialog.open && this.#show());
    onLanguage(() => this.#dialog.open && this.#show());
  }

  open() {
    this.#show();
    this.#dialog.showModal();
  }

  #show() {
    const { place, models, server } = this.#session;
    const inTab = place === "tab";
    $("#models-what").textContent = t(inTab ? (models.length ? "modelsTab" : "modelsNone") : "modelsServer");
    this.#own.show();
    const focused = document.activeElement?.closest("li")?.dataset.id;
    this.#list.replaceChildren(...(inTab ? models.map((model) => this.#tabModel(model)) : (server.models ?? []).map((model) => this.#serverModel(model))));
    if (focused) this.#list.querySelector(`[data-id="${CSS.escape(focused)}"] button`)?.focus();
  }

  #tabModel(model) {
    const session = this.#session;
    const current = model === session.model && session.phase !== "error" && session.phase !== "idle";
    const { need, over, budget, room } = memoryNeed(model, session);
    const tags = [model.bits, model.kind === "synthetic" ? t("modelSynthetic") : model.note === "demo" ? t("modelDemo") : isOwn(model) ? t(model.kind === "files" ? "modelFromDisk" : "modelFromAddress") : null].filter(Boolean);
    return this.#item(model.id, model.name, tags, current, [
      [t(model.kind === "files" ? "modelSize" : "modelDownload"), model.kind === "synthetic" ? t("modelNoDownload") : model.bytes ? bytes(model.bytes) : null],
      [t("modelMemory"), need ? t("modelNeeds", { need: bytes(need, true), have: bytes(budget, true) }) + (over ? `: ${t("modelOver")}` : "") : null],
      [t("modelContext"), room ? t("modelRoom", { n: count(room) }) : null],
      [t("modelParameters"), model.parameters ? large(model.parameters) : null],
    ], model.kind === "synthetic" ? t("modelRandom") : null, () => {
      this.#dialog.close();
      session.choose(model);
    }, isOwn(model) && model.kind !== "files" && !current ? () => session.forget(model) : null);
  }

  #serverModel(model) {
    return this.#item(model.id, model.id, [], model.id === this.#session.info?.model, [[t("modelContext"), model.max_model_len ? count(model.max_model_len) : null]], null, null);
  }

  #item(id, name, tags, current, rows, note, use, forget = null) {
    return el("li", { class: current ? "model current" : "model", "data-id": id },
      el("div", { class: "model-head" },
        el("div", {}, el("h3", { text: name }), ...tags.map((tag) => el("span", { class: "tag", text: tag }))),
        forget && button({ class: "quiet", onclick: forget, "aria-label": `${t("modelForget")}: ${name}` }, null, t("modelForget")),
        current ? el("span", { class: "in-use", text: t("modelInUse") }) : use && button({ class: "primary", onclick: use, "aria-label": `${t("modelUse")}: ${name}` }, null, t("modelUse"))),
      note && el("p", { text: note }),
      el("dl", {}, ...rows.filter(([, value]) => value).map(([term, value]) => el("div", {}, el("dt", { text: term }), el("dd", { text: value })))));
  }
}

// memoryNeed is what a model needs at the least for the context that the settings ask for, or for any, and how long a context
// the budget has room for. The browser tells no free memory: the budget is the setting, else the engine's default for the
// kind of adapter (internal/planner).
function memoryNeed(model, session) {
  const { memory_fixed: fixed, memory_per_block: block, block_size: size, max_model_len: longest } = model;
  const budget = (settings.get("gpu_memory") ?? 0) * 2 ** 20 || (session.place === "tab" && session.info?.memory_budget) || (session.adapter?.info?.kind === "gpu" ? 4 : 2) * 2 ** 30;
  if (!(fixed > 0 && block > 0 && size > 0 && longest > 0)) return { need: 0, over: false, budget, room: 0 };
  const wanted = Math.min(settings.get("max_model_len") ?? 1, longest);
  const need = fixed + block * Math.ceil(wanted / size);
  return { need, over: need > budget, budget, room: need > budget ? 0 : Math.min(longest, Math.floor((budget - fixed) / block) * size) };
}
