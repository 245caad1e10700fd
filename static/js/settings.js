// What the reader chose, remembered in localStorage: one flat object, absent keys mean the default.

const KEY = "pagelight.settings";
const listeners = new Set();
let values = {};

try {
  const saved = JSON.parse(localStorage.getItem(KEY));
  if (saved && typeof saved === "object" && !Array.isArray(saved)) values = saved;
} catch {
  // No storage: choices last as long as the page.
}

export const get = (key) => values[key];

// set stores a value; undefined, null and "" forget it.
export function set(key, value) {
  if (value === undefined || value === null || value === "") delete values[key];
  else values[key] = value;
  try {
    localStorage.setItem(KEY, JSON.stringify(values));
  } catch {
    // As above.
  }
  for (const fn of listeners) fn(key, value);
}

export const onChange = (fn) => listeners.add(fn);

// The sampling fields: wire name, and the range that the engine accepts.
export const sampling = [
  { key: "temperature", label: "temperature", what: "temperatureWhat", min: 0, max: 2, step: 0.1, empty: "modelDefault" },
  { key: "top_p", label: "topP", what: "topPWhat", min: 0.05, max: 1, step: 0.05, empty: "modelDefault" },
  { key: "top_k", label: "topK", what: "topKWhat", min: 0, max: 1000, step: 1, empty: "modelDefault" },
  { key: "max_tokens", label: "maxTokens", what: "maxTokensWhat", min: 1, max: 131072, step: 1, empty: "noLimit" },
  { key: "seed", label: "seed", what: "seedWhat", min: 0, max: 4294967295, step: 1, empty: "random" },
];

// samplingParams gives the fields of a request body that differ from the model's own.
export function samplingParams() {
  const body = {};
  for (const { key } of sampling) if (typeof values[key] === "number") body[key] = values[key];
  return body;
}

// Measured decode speed per adapter and model, so that a slow device can say what to expect before it answers.
export const speedOf = (adapter, model) => values.speeds?.[`${adapter}|${model}`];

export function rememberSpeed(adapter, model, speed) {
  const speeds = { ...values.speeds, [`${adapter}|${model}`]: Math.round(speed * 10) / 10 };
  set("speeds", Object.fromEntries(Object.entries(speeds).slice(-20)));
}
