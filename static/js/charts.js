// The pictures of the engine drawer. Each draws plain data; the words beside them say the same.
import { $, el, svg, t, bytes, duration, median, rate } from "./ui.js";

// speedLine draws the tokens per second of one answer, with its median.
export function speedLine(root, speeds) {
  const [width, height] = [300, 56];
  const shown = speeds.slice(-120);
  const top = Math.max(1, ...shown) * 1.1;
  const y = (value) => (height - (value / top) * height).toFixed(1);
  const step = width / Math.max(1, shown.length - 1);
  const middle = y(median(speeds));
  const points = shown.map((value, i) => `${(i * step).toFixed(1)},${y(value)}`).join(" ");
  root.replaceChildren(
    ...(shown.length > 1
      ? [
          svg("polygon", { points: `0,${height} ${points} ${width},${height}`, class: "area" }),
          svg("line", { x1: 0, x2: width, y1: middle, y2: middle, class: "median" }),
          svg("polyline", { points, class: "line" }),
        ]
      : [svg("line", { x1: 0, x2: width, y1: height - 1, y2: height - 1, class: "median" })]),
  );
  root.setAttribute("aria-label", shown.length > 1 ? t("speedLabel", { n: rate(median(speeds)) }) : t("speedNone"));
}

const PLAN_MIN = 0.15; // part of the budget from which the bar shows the whole budget

// memoryBar draws what the plan of the engine takes of its budget.
export function memoryBar(bar, legend, info, blocksUsed) {
  const used = info.num_blocks ? (info.kv_bytes * blocksUsed) / info.num_blocks : 0;
  const planned = info.weight_bytes + info.kv_bytes + info.scratch_bytes;
  const budget = Math.max(info.memory_budget, planned);
  const parts = [
    ["weights", info.weight_bytes],
    ["kvUsed", used],
    ["kvFree", info.kv_bytes - used],
    ["scratch", info.scratch_bytes],
    ["unplanned", budget - planned],
  ];
  // Beside a budget that is many times larger the plan could not be seen.
  const partial = planned < budget * PLAN_MIN;
  if (bar.children.length !== parts.length) {
    bar.replaceChildren(...parts.map(([key]) => el("span", { class: `part ${key}` })));
    legend.replaceChildren(...parts.map(([key]) => el("li", {}, el("i", { class: `swatch ${key}` }), el("span", {}), el("b", {}))));
  }
  parts.forEach(([key, size], i) => {
    bar.children[i].style.flexGrow = partial && key === "unplanned" ? 0 : size / (partial ? planned : budget);
    bar.children[i].title = `${t(key)}: ${bytes(size, true)}`;
    legend.children[i].children[1].textContent = t(key);
    legend.children[i].children[2].textContent = bytes(size, true);
  });
  return { planned, budget, partial };
}

// waterfall draws the phases of a load one below the other, on one time axis.
export function waterfall(root, rows) {
  const total = Math.max(1, rows.at(-1)?.end ?? 0);
  const names = { start: "pStart", download: "pDownload", upload: "pUpload", compile: "pCompile", warmup: "pWarmup" };
  root.replaceChildren(...rows.map((row) => {
    const bar = el("i", {});
    bar.style.marginInlineStart = `${(row.start / total) * 100}%`;
    bar.style.width = `${Math.max(0.7, ((row.end - row.start) / total) * 100)}%`;
    const size = row.bytes && row.phase !== "warmup" ? ` · ${bytes(row.bytes)}` : "";
    return el("li", {},
      el("span", { text: names[row.phase] ? t(names[row.phase]) : row.phase }),
      el("span", { class: "track", "aria-hidden": "true" }, bar),
      el("b", { text: duration(row.end - row.start) + size }));
  }));
  return total;
}

const SQUARES_MAX = 2048;
const OTHERS = 5; // colours for other requests

// BlockMap draws the cache as squares, one per block, or per group of blocks when there are very many.
export class BlockMap {
  #canvas = $("#blocks");
  #tip = $("#blocks-tip");
  #owners = new Map(); // block -> [sequence, index of the block in it]
  #info = null;
  #cell = 10;
  #columns = 1;
  #colours = new Map(); // request id -> colour number
  #name;

  // name(id) says whose request it is, or "" for one of another conversation.
  constructor(name) {
    this.#name = name;
    this.#canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.#canvas.addEventListener("pointerleave", () => (this.#tip.textContent = ""));
  }

  get group() {
    return this.#info ? Math.ceil(this.#info.num_blocks / SQUARES_MAX) : 1;
  }

  colour(sequence) {
    if (this.#name(sequence.id)) return "--accent-mark";
    if (!this.#colours.has(sequence.id)) this.#colours.set(sequence.id, (this.#colours.size % OTHERS) + 1);
    return `--seq-${this.#colours.get(sequence.id)}`;
  }

  draw(info, sequences) {
    this.#info = info;
    this.#owners.clear();
    for (const sequence of sequences) sequence.blocks.forEach((block, i) => this.#owners.set(block, [sequence, i]));
    const live = new Set(sequences.map((sequence) => sequence.id));
    for (const id of this.#colours.keys()) if (!live.has(id)) this.#colours.delete(id);

    const canvas = this.#canvas;
    const width = canvas.clientWidth;
    if (!width) return;
    const squares = Math.ceil(info.num_blocks / this.group);
    this.#cell = squares <= 160 ? 14 : squares <= 640 ? 10 : 7;
    this.#columns = Math.max(1, Math.floor(width / this.#cell));
    const height = Math.max(1, Math.ceil(squares / this.#columns)) * this.#cell;
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    const style = getComputedStyle(canvas);
    const paint = canvas.getContext("2d");
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.clearRect(0, 0, width, height);
    const free = style.getPropertyValue("--block-free");
    const gap = this.#cell > 8 ? 2 : 1;
    for (let square = 0; square < squares; square++) {
      const owner = this.#ownerOf(square);
      paint.fillStyle = owner ? style.getPropertyValue(this.colour(owner[0])) : free;
      paint.fillRect((square % this.#columns) * this.#cell, Math.floor(square / this.#columns) * this.#cell, this.#cell - gap, this.#cell - gap);
    }
  }

  #ownerOf(square) {
    for (let block = square * this.group; block < (square + 1) * this.group; block++) if (this.#owners.has(block)) return this.#owners.get(block);
    return null;
  }

  #point(event) {
    if (!this.#info) return;
    const column = Math.floor(event.offsetX / this.#cell);
    const square = Math.floor(event.offsetY / this.#cell) * this.#columns + column;
    const block = square * this.group;
    if (column >= this.#columns || block >= this.#info.num_blocks) return (this.#tip.textContent = "");
    const owner = this.#ownerOf(square);
    if (!owner) return (this.#tip.textContent = t("blockFree", { n: block }));
    const [sequence, index] = owner;
    const tokens = Math.max(0, Math.min(this.#info.block_size, sequence.tokens - index * this.#info.block_size));
    this.#tip.textContent = t("blockUsed", { n: block, who: this.#name(sequence.id) || t("seqOther", { id: sequence.id }), tokens });
  }
}
