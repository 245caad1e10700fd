// Small helpers of the page: language, elements, icons, numbers, the clipboard, announcements.
import { strings, languages } from "./strings.js";
import * as settings from "./settings.js";

// ---- Language

const fromBrowser = () => (/^zh\b/i.test(navigator.language || "") ? "zh" : "en");
let lang = settings.get("lang") in languages ? settings.get("lang") : fromBrowser();
const languageListeners = new Set();

export const language = () => lang;
export const locale = () => (lang === "zh" ? "zh-CN" : "en");

// t gives a sentence in the reader's language.
export function t(key, vars) {
  const entry = strings[key];
  if (!entry) return key;
  const text = entry[lang === "zh" ? 1 : 0];
  return vars ? text.replace(/\{(\w+)\}/g, (_, name) => String(vars[name] ?? "")) : text;
}

// onLanguage calls fn now and whenever the language changes.
export function onLanguage(fn) {
  languageListeners.add(fn);
  fn();
}

export function setLanguage(next) {
  lang = next;
  settings.set("lang", next);
  translate(document);
  for (const fn of languageListeners) fn();
}

// translate fills data-t (text), data-t-label (accessible name and tooltip) and data-t-placeholder below root.
export function translate(root) {
  document.documentElement.lang = locale();
  for (const node of root.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of root.querySelectorAll("[data-t-label]")) label(node, t(node.dataset.tLabel));
  for (const node of root.querySelectorAll("[data-t-placeholder]")) node.placeholder = t(node.dataset.tPlaceholder);
  delete document.documentElement.dataset.pending;
}

export function label(node, text) {
  node.setAttribute("aria-label", text);
  node.title = text;
}

// sentences puts one after the other; Chinese has no space between them.
export const sentences = (...parts) => parts.filter(Boolean).join(lang === "zh" ? "" : " ");

// ---- Elements

export const $ = (selector, root = document) => root.querySelector(selector);

// el builds an element. Attributes: class, text, on<event> functions, anything else as an attribute; null is left out.
// Text never goes through a parser.
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// icon shows one of the symbols of index.html.
export const icon = (name) => svg("svg", { class: "icon", "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));

export const button = (attributes, iconName, text) =>
  el("button", { type: "button", ...attributes }, iconName && icon(iconName), text && el("span", { text }));

// ---- Numbers

export const count = (n) => Math.round(n).toLocaleString(locale());
export const rate = (n) => (n >= 100 ? count(n) : n.toLocaleString(locale(), { maximumFractionDigits: n >= 10 ? 1 : 2 }));

// bytes uses the decimal units of downloads, or the binary ones of memory.
export function bytes(n, binary = false) {
  const base = binary ? 1024 : 1000;
  const units = binary ? ["B", "KiB", "MiB", "GiB"] : ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (n >= base && unit < 3) {
    n /= base;
    unit++;
  }
  return `${n.toLocaleString(locale(), { maximumFractionDigits: unit > 1 && n < 100 ? 1 : 0 })}\u00a0${units[unit]}`;
}

// part is "1.3 of 9.4 MB": both in the unit of the whole.
export function part(done, total) {
  const base = 1000 ** Math.min(3, Math.max(0, Math.floor(Math.log10(Math.max(1, total)) / 3)));
  return t("sOf", { done: (done / base).toLocaleString(locale(), { maximumFractionDigits: base > 1000 && total / base < 100 ? 1 : 0 }), total: bytes(total) });
}

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)}\u00a0ms`;
  if (ms < 60_000) return `${(ms / 1000).toLocaleString(locale(), { maximumFractionDigits: ms < 10_000 ? 1 : 0 })}\u00a0s`;
  return `${Math.floor(ms / 60_000)}\u00a0min ${Math.round((ms % 60_000) / 1000)}\u00a0s`;
}

export function large(n) {
  if (n >= 1e9) return `${(n / 1e9).toLocaleString(locale(), { maximumFractionDigits: 2 })} B`;
  if (n >= 1e6) return `${(n / 1e6).toLocaleString(locale(), { maximumFractionDigits: n < 1e8 ? 1 : 0 })} M`;
  return count(n);
}

export const median = (numbers) => {
  if (!numbers.length) return 0;
  const sorted = [...numbers].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};

// ---- Clipboard and announcements

// copy puts text on the clipboard; the button says for a moment how it went.
export async function copy(text, pressed) {
  let ok = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Insecure origins have no clipboard interface; the old command still works there.
    const area = el("textarea", { class: "sr-only", "aria-hidden": "true" });
    area.value = text;
    (pressed?.closest("dialog") || document.body).append(area);
    area.select();
    ok = document.execCommand("copy");
    area.remove();
    pressed?.focus();
  }
  const said = t(ok ? "copied" : "copyFailed");
  announce(said);
  if (!pressed || pressed.dataset.busy) return;
  pressed.dataset.busy = "";
  const use = pressed.querySelector("use");
  const before = use?.getAttribute("href");
  if (ok) use?.setAttribute("href", "#i-check");
  const text_ = pressed.querySelector("span");
  const word = text_?.textContent;
  if (text_) text_.textContent = said;
  setTimeout(() => {
    if (before) use.setAttribute("href", before);
    if (text_ && text_.textContent === said) text_.textContent = word;
    delete pressed.dataset.busy;
  }, 1500);
}

// announce tells a screen reader, politely; nothing is shown.
export function announce(text) {
  const node = $("#announcer");
  node.textContent = "";
  setTimeout(() => (node.textContent = text), 50);
}

export const newId = (prefix) => prefix + Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
