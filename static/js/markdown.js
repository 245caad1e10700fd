// Markdown of untrusted text, as elements. Three walls, each enough by itself: HTML in the text is shown as text, the result
// is sanitised to a short list of tags, and the page's Content-Security-Policy runs and loads nothing foreign.
import { marked, Renderer, Lexer } from "../vendor/marked.js";
import DOMPurify from "../vendor/dompurify.js";
import { el, button, copy, t } from "./ui.js";

const TAIL_MAX = 16_000; // characters of an unfinished block that are still parsed in every frame
const BLOCK_MAX = 64_000; // characters of a block beyond which it is shown as plain text
const TOO_DEEP = /^(?:[ \t]*(?:[>*+-]|\d+[.)])){30}|^[ \t]{120,}(?:[>*+-]|\d+[.)])/m; // nesting that no reader needs and parsers cut

const escape = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

class SafeRenderer extends Renderer {
  html({ text, block }) {
    return block ? `<p>${escape(text.trimEnd())}</p>` : escape(text);
  }
  image({ href, text }) {
    return `<a href="${escape(href)}">${escape(text || href)}</a>`; // a picture would be a request to another origin
  }
  heading({ tokens, depth }) {
    const level = Math.min(depth + 2, 6); // the page has h1 and h2
    return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
  }
  checkbox({ checked }) {
    return checked ? "☑ " : "☐ ";
  }
}

marked.use({ gfm: true, breaks: true, async: false });
const options = { ...marked.defaults, renderer: new SafeRenderer() };

const PURIFY = {
  ALLOWED_TAGS: ["p", "br", "hr", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a", "h3", "h4", "h5", "h6",
    "table", "thead", "tbody", "tr", "th", "td"],
  ALLOWED_ATTR: ["href", "start", "align", "class"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ["align", "start"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

// elements turns one block token into nodes. Whatever a parser cannot take is shown as plain text.
function elements(token) {
  if (token.raw.length > BLOCK_MAX || TOO_DEEP.test(token.raw)) return [plain(token.raw)];
  if (token.type === "code") return [codeBlock(token.lang, token.text)];
  try {
    const fragment = DOMPurify.sanitize(marked.parser([token], options), PURIFY);
    decorate(fragment);
    return [...fragment.childNodes];
  } catch {
    return [plain(token.raw)]; // marked throws RangeError on thousands of nested quotes
  }
}

const plain = (text) => el("p", { class: "plain", text: text.replace(/\n+$/, "") });

function lex(text) {
  try {
    return new Lexer(options).lex(text);
  } catch {
    return [{ type: "plain", raw: text }];
  }
}

const elementsOf = (token) => (token.type === "plain" ? [plain(token.raw)] : elements(token));

function decorate(root) {
  for (const link of root.querySelectorAll("a")) {
    if (!link.hasAttribute("href")) {
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
    link.title = link.href;
  }
  for (const pre of root.querySelectorAll("pre")) {
    const code = pre.querySelector("code");
    const lang = /(?:^|\s)language-(\S+)/.exec(code?.className ?? "")?.[1];
    pre.replaceWith(codeBlock(lang, (code ?? pre).textContent.replace(/\n$/, "")));
  }
  for (const node of root.querySelectorAll("[class]")) if (!node.closest(".code")) node.removeAttribute("class");
  for (const table of root.querySelectorAll("table")) {
    const wrap = el("div", { class: "table", tabindex: "0", role: "group", "aria-label": t("table") });
    table.replaceWith(wrap);
    wrap.append(table);
    for (const cell of table.querySelectorAll("th:empty")) cell.replaceWith(el("td"));
  }
}

export function codeBlock(lang, text) {
  const name = (lang ?? "").trim().split(/\s/)[0].slice(0, 24);
  const code = el("code", {}, text);
  const copies = button({ class: "quiet", onclick: () => copy(code.textContent, copies) }, "copy", t("copy"));
  return el("div", { class: "code" },
    el("div", { class: "code-head" }, el("span", { text: name }), copies),
    el("pre", { tabindex: "0", role: "group", "aria-label": `${t("code")} ${name}`.trim() }, code));
}

// Markdown shows a text that grows. Blocks that can no longer change are made once; only the last block is made again, so
// the work of a frame does not grow with the text.
export class Markdown {
  #root;
  #text = "";
  #settled = 0; // characters of the text that are shown by finished nodes
  #live = []; // nodes of the unfinished rest
  #liveToken = null;

  constructor(root) {
    this.#root = root;
  }

  // set shows text. Text that does not continue what is shown starts afresh.
  set(text, finished) {
    if (!text.startsWith(this.#text) || this.#text === "") {
      this.#root.replaceChildren();
      this.#settled = 0;
      this.#live = [];
      this.#liveToken = null;
    }
    this.#text = text;
    const rest = text.slice(this.#settled);
    if (!finished && rest.length > TAIL_MAX && this.#growPlain(rest)) return;
    const tokens = lex(rest).filter((token) => token.raw);
    const last = finished ? tokens.length : this.#firstUnsettled(tokens);
    const done = tokens.slice(0, last).filter((token) => token.type !== "space" && token.type !== "def");
    const open = tokens.slice(last).filter((token) => token.type !== "space" && token.type !== "def");

    if (!done.length && open.length === 1 && this.#growCode(open[0])) return;
    for (const node of this.#live) node.remove();
    this.#root.append(...done.flatMap(elementsOf));
    for (const token of tokens.slice(0, last)) this.#settled += token.raw.length;
    this.#live = open.flatMap(elementsOf);
    this.#liveToken = open.length === 1 ? open[0] : null;
    this.#root.append(...this.#live);
  }

  // firstUnsettled is the index of the first token that more text could still change: the last block, and the one before
  // it while the last is so short that it may turn out to be a part of that (a list's next item).
  #firstUnsettled(tokens) {
    const blocks = tokens.map((token, index) => [token, index]).filter(([token]) => token.type !== "space");
    if (!blocks.length) return 0;
    const [token, index] = blocks.at(-1);
    if (blocks.length > 1 && token.raw.length < 8 && !token.raw.includes("\n")) return blocks.at(-2)[1];
    return index;
  }

  // growCode adds to an open code block, the one kind of block that gets long.
  #growCode(token) {
    const before = this.#liveToken;
    if (token.type !== "code" || before?.type !== "code" || before.lang !== token.lang || !token.text.startsWith(before.text)) return false;
    const text = this.#live[0]?.querySelector?.("code")?.firstChild;
    if (!text && before.text !== "") return false;
    if (text) text.appendData(token.text.slice(before.text.length));
    else this.#live[0].querySelector("code").append(token.text);
    this.#liveToken = token;
    return true;
  }

  // growPlain shows a huge unfinished block without parsing it.
  #growPlain(rest) {
    if (/^ {0,3}(```|~~~)/.test(rest)) return false; // growCode does those
    const node = this.#live[0];
    if (this.#live.length === 1 && node.className === "plain" && node.firstChild && rest.startsWith(node.firstChild.data)) {
      node.firstChild.appendData(rest.slice(node.firstChild.data.length));
      return true;
    }
    for (const old of this.#live) old.remove();
    this.#live = [el("p", { class: "plain" }, document.createTextNode(rest))];
    this.#liveToken = null;
    this.#root.append(...this.#live);
    return true;
  }
}
