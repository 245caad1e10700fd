// Models of the reader's own: picked from disk, dropped on the page, or at an address. Here it is only found out what was meant;
// the worker reads the files.
import { $, t, announce } from "./ui.js";

const FILES_MAX = 10_000; // of a dropped folder

// OwnModels is the lower part of the list of models, and the page as a place to drop something on.
export class OwnModels {
  #session;
  #done; // called when a model was chosen
  #depth = 0; // of elements that something is dragged over
  #error = ""; // key of what is wrong with the address

  constructor(session, done) {
    this.#session = session;
    this.#done = done;
    for (const [opener, input] of [["#open-file", "#pick-file"], ["#open-folder", "#pick-folder"]]) {
      $(opener).addEventListener("click", () => $(input).click());
      $(input).addEventListener("change", ({ target }) => {
        const files = [...target.files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
        target.value = ""; // the same may be picked again
        this.#open(files);
      });
    }
    $("#open-address").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#openAddress($("#address").value);
    });
    $("#address").addEventListener("input", () => this.#say(""));
    this.#listen();
  }

  // show translates what is not fixed.
  show() {
    $("#address-error").textContent = this.#error && t(this.#error);
  }

  #say(key) {
    this.#error = key;
    $("#address").toggleAttribute("aria-invalid", Boolean(key));
    this.show();
  }

  #open(files) {
    if (!files.length) return;
    this.#done();
    this.#session.openFiles(files);
  }

  #openAddress(text) {
    const model = modelAt(text);
    this.#say(model ? "" : text.trim() ? "badAddress" : "noAddress");
    if (!model) return $("#address").focus();
    $("#address").value = "";
    this.#done();
    this.#session.openAddress(model);
  }

  #listen() {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    const show = (shown) => {
      if ($("#drop").hidden === shown && shown) announce(t("dropHere"));
      $("#drop").hidden = !shown;
    };
    addEventListener("dragenter", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.#depth++;
      show(true);
    });
    addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault(); // makes the page a place to drop on
      event.dataTransfer.dropEffect = "copy";
    });
    addEventListener("dragleave", (event) => {
      if (!hasFiles(event)) return;
      this.#depth = Math.max(0, this.#depth - 1);
      show(this.#depth > 0);
    });
    addEventListener("drop", async (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault(); // the browser would leave the page for the file
      this.#depth = 0;
      show(false);
      this.#open(await dropped(event.dataTransfer));
    });
  }
}

// dropped lists what was dropped, folders with all that is in them, as [{path, file}]. The entries have to be asked for before
// anything else happens.
async function dropped(transfer) {
  const items = [...transfer.items].filter((item) => item.kind === "file").map((item) => ({ entry: item.webkitGetAsEntry?.(), file: item.getAsFile() }));
  const files = [];
  const walk = async (entry, path) => {
    if (files.length >= FILES_MAX) return;
    if (entry.isFile) {
      files.push({ path, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const one of some) await walk(one, `${path}/${one.name}`);
    }
  };
  for (const { entry, file } of items) {
    if (entry?.isDirectory) await walk(entry, entry.name).catch(() => {}); // what cannot be read is left out
    else if (file) files.push({ path: file.name, file });
  }
  return files;
}

// nameOfFiles is what to call picked files: their folder, or the file.
export function nameOfFiles(files) {
  const folder = files.find(({ path }) => path.includes("/"));
  if (folder) return folder.path.split("/")[0];
  return (files.find(({ path }) => /\.gguf$/i.test(path)) ?? files[0]).path;
}

const HUBS = ["huggingface.co", "hf-mirror.com"]; // the first is what hf: means

// modelAt reads an address: https://…, hf:ORG/NAME, hf:ORG/NAME@REVISION:FILE, or a page of the hub. It gives what the worker
// needs, or null when it is none.
export function modelAt(text) {
  text = text.trim();
  const short = /^hf:\/{0,2}(\w[\w.-]*\/\w[\w.-]*)(?:@([^:\s]+))?(?::(.+))?$/.exec(text);
  if (short) return onHub(HUBS[0], short[1], short[2] ?? "main", short[3]);
  if (HUBS.some((site) => text.startsWith(`${site}/`))) text = `https://${text}`;
  let url;
  try {
    url = new URL(text);
  } catch {
    return null;
  }
  if ((url.protocol !== "https:" && url.protocol !== "http:") || url.username) return null;
  if (HUBS.includes(url.host)) {
    const page = /^\/(\w[\w.-]*\/\w[\w.-]*?)(?:\/(?:tree|blob|resolve)\/([^/]+)(?:\/(.+))?)?\/?$/.exec(url.pathname);
    if (page) return onHub(url.host, page[1], decodeURIComponent(page[2] ?? "main"), page[3] && decodeURIComponent(page[3]));
  }
  url.hash = "";
  const parts = url.pathname.split("/").filter(Boolean);
  if (/^(manifest|config)\.json$|\.safetensors(\.index\.json)?$/.test(parts.at(-1) ?? "")) parts.pop(); // the folder is the model
  return { id: `url:${url.href}`, name: decode(parts.at(-1) ?? url.host).replace(/\.gguf$/i, ""), kind: "url", url: url.href };
}

function onHub(site, repo, revision, file) {
  if (!file) return { id: `hf:${site}/${repo}@${revision}`, name: repo.split("/")[1], kind: "hub", site, repo, revision };
  const url = `https://${site}/${repo}/resolve/${encodeURIComponent(revision)}/${file.split("/").map(encodeURIComponent).join("/")}`;
  return { id: `url:${url}`, name: file.split("/").at(-1).replace(/\.gguf$/i, ""), kind: "url", url };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// cachedUnder is what the addresses of a model's files begin with.
export function cachedUnder(model) {
  if (model.kind === "hub") return `https://${model.site}/${model.repo}/resolve/${encodeURIComponent(model.revision)}/`;
  const url = model.url.split("?")[0];
  if (/-\d{5}-of-\d{5}\.gguf$/.test(url)) return url.replace(/-\d{5}-of-\d{5}\.gguf$/, "-");
  return /\.(json|safetensors)$|\/$/.test(url) ? url.replace(/[^/]*$/, "") : model.url;
}

// bitsOf names the format of most weights, as the site's list does: "q4g32, f16" is "4-bit".
export function bitsOf(formats) {
  const first = formats.split(",")[0].trim();
  const bits = /^(?:bf|f|iq|q)(\d+)/.exec(first)?.[1];
  return bits ? `${bits}-bit` : first;
}
