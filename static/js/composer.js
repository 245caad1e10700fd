// The message box: grows with its text, Enter sends, Shift+Enter breaks, Esc stops. Keeps an unsent text over a reload.
import { $, announce, count, t, label, onLanguage } from "./ui.js";

const DRAFT = "pagelight.draft";
const CONTEXT_SHOWN = 0.5; // part of the context from which its use is shown

export class Composer {
  #input = $("#input");
  #send = $("#send");
  #stop = $("#stop");
  #editing = $("#editing");
  #context = $("#context");
  #chat;
  #session;
  #replace = null; // the question that the text will replace

  constructor(chat, session, sent) {
    this.#chat = chat;
    this.#session = session;
    $("#composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit(sent);
    });
    this.#input.addEventListener("input", () => this.#changed());
    this.#input.addEventListener("keydown", (event) => this.#key(event, sent));
    this.#stop.addEventListener("click", () => this.#stopAnswer());
    $("#cancel-edit").addEventListener("click", () => this.#endEdit(""));
    document.addEventListener("keydown", (event) => {
      const elsewhere = event.defaultPrevented || document.querySelector("dialog[open]") || event.target.closest("#drawer");
      if (event.key === "Escape" && !event.isComposing && !elsewhere) this.#stopAnswer();
    });
    chat.on("state", () => this.#show());
    chat.on("conversation", () => {
      if (this.#replace && !chat.messages.includes(this.#replace)) this.#endEdit(this.#input.value);
      this.#show();
    });
    session.on("change", () => this.#show());
    try {
      this.#input.value = this.#input.value || (sessionStorage.getItem(DRAFT) ?? "");
    } catch {
      // No storage: drafts are not kept.
    }
    onLanguage(() => this.#show());
    this.#changed();
  }

  focus() {
    this.#input.focus();
  }

  // edit puts an earlier question into the box.
  edit(message) {
    this.#replace = message;
    this.#editing.hidden = false;
    this.#input.value = message.content;
    this.#changed();
    this.#input.focus();
  }

  #endEdit(text) {
    this.#replace = null;
    this.#editing.hidden = true;
    this.#input.value = text;
    this.#changed();
  }

  #key(event, sent) {
    // While an input method composes (Chinese), Enter picks a candidate. Safari ends composition before this event and
    // marks it only by key code 229.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    this.#submit(sent);
  }

  #submit(sent) {
    const text = this.#input.value.trim();
    if (!text || this.#chat.running || this.#chat.waiting) return;
    const replace = this.#replace;
    this.#endEdit("");
    this.#chat.ask(text, replace);
    sent();
  }

  #stopAnswer() {
    if (!this.#chat.running && !this.#chat.waiting) return;
    this.#chat.stop();
    announce(t("stopping"));
    this.#input.focus();
  }

  #changed() {
    if (!CSS.supports("field-sizing", "content")) {
      this.#input.style.height = "auto";
      this.#input.style.height = `${this.#input.scrollHeight}px`;
    }
    this.#send.disabled = !this.#input.value.trim();
    try {
      sessionStorage.setItem(DRAFT, this.#replace ? "" : this.#input.value);
    } catch {
      // As above.
    }
  }

  #show() {
    const { running, waiting } = this.#chat;
    const busy = Boolean(running || waiting);
    if (this.#stop.hidden === busy) {
      const focused = document.activeElement === this.#send || document.activeElement === this.#stop;
      this.#stop.hidden = !busy;
      this.#send.hidden = busy;
      if (focused) this.#input.focus();
    }
    label(this.#stop, t(running?.stopping ? "stopping" : "stop"));
    this.#stop.disabled = Boolean(running?.stopping);
    const max = this.#session.info?.max_model_len ?? 0;
    const used = this.#chat.contextUsed;
    const shown = max > 0 && used > max * CONTEXT_SHOWN;
    this.#context.textContent = shown ? t("context", { used: count(used), max: count(max) }) : "";
  }
}
