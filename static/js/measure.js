// What the page of measurements does: asks the engine of this tab as llama.cpp's llama-bench and llama-batched-bench ask theirs,
// and checks what it says before it is timed. The report has the form of internal/bench (schema 1).
//
// Everything is measured from outside, from a request to the chunks of its answer, as whoever uses the page would see it.

export const BATCH_PROMPT = 128; // tokens of each of many prompts, as llama-batched-bench was run
export const BATCH_GEN = 64; // and of each of their answers
const CHECK_STEPS = 24;
const LEAST_MARGIN = { f32: 0.02, f16: 0.15 }; // of the two best logits; below it another choice is no fault
const SLACK = 64; // room for tokens that are computed ahead

const GAMMA = 0x9e3779b97f4a7c15n;
const mask = (z) => BigInt.asUintN(64, z);

// promptOf gives n ids below vocab that depend on a name alone: splitmix64 seeded by FNV-1a of "case NAME", as the known answers.
export function promptOf(name, n, vocab) {
  let seed = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(`case ${name}`)) seed = mask((seed ^ BigInt(byte)) * 0x100000001b3n);
  return Array.from({ length: n }, (_, i) => {
    let z = mask(seed + BigInt(i + 1) * GAMMA);
    z = mask((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = mask((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return Number((z ^ (z >> 31n)) % BigInt(vocab));
  });
}

const numbers = (text) => (text ?? "").split(",").map((v) => v.trim()).filter(Boolean).map(Number);

// optionsOf reads the page's address: ?p=512,2048&n=128&d=0,4096&b=1,8&r=5&kv=f16&device=auto. It throws what is wrong.
export function optionsOf(params) {
  const list = (name, fallback, most) => {
    const values = params.has(name) ? numbers(params.get(name)) : fallback;
    for (const v of values) if (!Number.isInteger(v) || v < 0 || v > most) throw new RangeError(`${name}=${params.get(name)}: 0 to ${most}`);
    return values;
  };
  const choice = (name, values) => {
    const v = params.get(name) ?? values[0];
    if (!values.includes(v)) throw new RangeError(`${name}=${v}: ${values.join(", ")}`);
    return v;
  };
  const options = {
    n_prompt: list("p", [512], 1 << 20), n_gen: list("n", [128], 1 << 20), n_depth: list("d", [0], 1 << 20), batch: list("b", [1, 8], 256),
    repetitions: list("r", [3], 1000)[0] || 1,
  };
  return { options, kv: choice("kv", ["f16", "f32", "int8"]), device: choice("device", ["auto", "gpu", "cpu"]) };
}

const positive = (values) => values.filter((v) => v > 0);

// needs is the room that the tests take: tokens of a context, and answers at once.
export function needs({ n_prompt, n_gen, n_depth, batch }) {
  const depths = n_depth.length ? n_depth : [0];
  const lengths = [...positive(n_prompt), ...positive(n_gen).flatMap((g) => depths.map((d) => Math.max(d, 1) + g))];
  if (positive(batch).length) lengths.push(BATCH_PROMPT + BATCH_GEN);
  return { length: Math.max(0, ...lengths), seqs: Math.max(1, ...batch) };
}

function speedOf(samples) {
  const sorted = [...samples].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  const middle = sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  const mean = samples.reduce((a, b) => a + b, 0) / samples.length;
  const sd = samples.length > 1 ? Math.sqrt(samples.reduce((a, b) => a + (b - mean) ** 2, 0) / (samples.length - 1)) : 0;
  return { median: middle, min: sorted[0], max: sorted.at(-1), sd, samples };
}

export class Measurement {
  #engine;
  #info;
  #options;
  #kv;
  #vocab;
  #tell;
  #asked = 0;
  #stopped = false;
  #running = new Set();

  // engine is a TabEngine with a model that was opened for this; tell(key, values) says what is done.
  constructor(engine, info, vocab, { options, kv }, tell) {
    this.#engine = engine;
    this.#info = info;
    this.#vocab = vocab;
    this.#options = options;
    this.#kv = kv;
    this.#tell = tell;
  }

  // stop ends the measurement: run then rejects.
  stop() {
    this.#stopped = true;
    for (const id of this.#running) this.#engine.cancel(id);
  }

  // ask sends a prompt of ids and notes when which number of tokens had come.
  #ask(ids, tokens) {
    if (this.#stopped) return Promise.reject(new DOMException("stopped", "AbortError"));
    const id = `m${++this.#asked}`;
    this.#running.add(id);
    return new Promise((resolve, reject) => {
      const start = performance.now();
      const came = [];
      let text = "";
      this.#engine.generate(id, "completions", {
        prompt: ids, max_tokens: tokens, temperature: 0, ignore_eos: true, stream: true,
        stream_options: { include_usage: true, continuous_usage_stats: true },
      }, {
        chunk: ({ choices, usage }) => {
          text += choices?.[0]?.text ?? "";
          const n = usage?.completion_tokens ?? 0;
          if (n > (came.at(-1)?.n ?? 0)) came.push({ at: performance.now(), n });
        },
        end: (error) => {
          this.#running.delete(id);
          if (error) reject(error);
          else if (this.#stopped) reject(new DOMException("stopped", "AbortError"));
          else resolve({ start, came, text });
        },
      });
    });
  }

  // tokensOf splits an answer: the pieces of synthetic models are numbers, the ids themselves.
  #tokensOf(text) {
    return this.#info.synthetic ? numbers(text.trim().replaceAll(" ", ",")) : [...text];
  }

  // check compares answers, one at a time, with those of another program where they are known, else with the
  // engine's own. tests may ask it again.
  async check(known) {
    const margin = LEAST_MARGIN[this.#kv] ?? LEAST_MARGIN.f16;
    const verdict = { verdict: "passed", known_answers: Boolean(known), source: known?.reference ?? "the same engine", least_margin: margin, cases: [] };
    if (this.#kv === "int8") verdict.verdict = "approximate";
    const cases = known
      ? known.cases.map((c) => ({ ...c, ids: promptOf(c.name, c.n, this.#vocab) }))
      : [["one", 1], ["short", 33]].map(([name, n]) => ({ name, n, ids: promptOf(name, n, this.#vocab) }));
    const fits = cases.filter((c) => c.n + (c.greedy?.length ?? CHECK_STEPS) <= this.#info.max_model_len);
    for (const [i, c] of fits.entries()) {
      this.#tell("benchChecking", { done: i + 1, total: fits.length });
      const first = known ? null : this.#tokensOf((await this.#ask(c.ids, CHECK_STEPS)).text);
      const want = c.greedy ?? first;
      const narrow = c.margins?.findIndex((m) => m < margin) ?? -1;
      const compared = narrow < 0 ? want.length : narrow;
      const { text } = await this.#ask(c.ids, c.greedy?.length ?? CHECK_STEPS);
      const got = this.#tokensOf(text);
      const at = want.slice(0, compared).findIndex((token, k) => got[k] !== token);
      const line = { setting: "batch 1", case: c.name, prompt: c.n, answers: 1, compared, wrong: at < 0 ? 0 : 1 };
      if (at >= 0) {
        line.at = at;
        if (known) Object.assign(line, { got: got[at] ?? -1, want: want[at] });
        if (verdict.verdict === "passed") verdict.verdict = "failed";
      }
      verdict.cases.push(line);
    }
    return verdict;
  }

  // tests runs them all and gives the lines of the table; each is shown as soon as it is there.
  async tests(show) {
    const { n_prompt, n_gen, n_depth, batch } = this.#options;
    const depths = n_depth.length ? n_depth : [0];
    const list = [
      ...positive(n_prompt).map((p) => ({ name: `pp${p}`, kind: "prefill", n_prompt: p, n_gen: 0, n_depth: 0, batch: 1 })),
      ...positive(n_gen).flatMap((g) => depths.map((d) => ({ name: d ? `tg${g} @ d${d}` : `tg${g}`, kind: "decode", n_prompt: 0, n_gen: g, n_depth: d, batch: 1 }))),
      ...positive(batch).map((b) => ({ name: `b${b} (pp${BATCH_PROMPT}+tg${BATCH_GEN})`, kind: "batch", n_prompt: BATCH_PROMPT, n_gen: BATCH_GEN, n_depth: 0, batch: b })),
    ];
    const lines = [];
    for (const [i, test] of list.entries()) {
      const runs = [];
      for (let r = 0; r <= this.#options.repetitions; r++) { // the first run does not count: what is built late is built in it
        this.#tell("benchTesting", { name: test.name, run: r, runs: this.#options.repetitions, done: i, total: list.length });
        const run = await this.#once(test);
        if (r > 0) runs.push(run);
      }
      const sum = (f) => runs.reduce((total, run) => total + f(run), 0);
      const tokens = sum((run) => run.tokens);
      const us = (ms) => (1000 * ms) / tokens;
      const encode = us(sum((run) => run.work.encodeMS));
      lines.push({
        ...test,
        tokens_per_second: speedOf(runs.map((run) => (1000 * run.timed) / run.ms)),
        latency_ms: speedOf(runs.map((run) => run.latency)).median,
        stages: {
          encode_us: encode, wait_us: 0, host_us: Math.max(0, us(sum((run) => run.whole)) - encode), // a tab does not tell the two apart
          dispatches: sum((run) => run.work.dispatches) / tokens, submits: sum((run) => run.work.submits) / tokens,
          read_backs: sum((run) => run.work.readBacks) / tokens, bytes_read: sum((run) => run.work.bytesRead) / tokens,
        },
      });
      show(lines);
    }
    return lines;
  }

  // once runs a test: ms for timed tokens, the latency in ms, and what the device did meanwhile for tokens tokens in whole ms.
  async #once(test) {
    const prompt = (n) => promptOf(`measured ${++this.#asked}`, n, this.#vocab); // distinct ones: nothing is there already
    const before = await this.#work();
    const start = performance.now();
    const sizes = Array.from({ length: test.batch }, () => (test.kind === "decode" ? Math.max(test.n_depth, 1) : test.n_prompt));
    const answers = await Promise.all(sizes.map((n) => this.#ask(prompt(n), test.n_gen || 1)));
    const whole = performance.now() - start;
    const after = await this.#work();
    const work = Object.fromEntries(Object.keys(before).map((key) => [key, after[key] - before[key]]));
    if (test.kind === "prefill") {
      const ms = answers[0].came[0].at - answers[0].start;
      return { ms, timed: test.n_prompt, latency: ms, tokens: test.n_prompt, whole, work };
    }
    const from = Math.max(...answers.map((a) => a.came[0].at));
    const to = Math.max(...answers.map((a) => a.came.at(-1).at));
    const timed = answers.reduce((sum, a) => sum + a.came.at(-1).n - a.came.findLast(({ at }) => at <= from).n, 0);
    const ms = to - from;
    return { ms, timed, latency: (ms * test.batch) / Math.max(timed, 1), tokens: test.n_gen * test.batch, whole, work };
  }

  async #work() {
    return (await this.#engine.ask({ type: "work" })).work;
  }
}
