// The page: makes its parts and connects them. Nothing here needs the engine; it is loaded after the first paint.
import { $, t, announce, bytes, count, label, language, onLanguage, setLanguage, translate } from "./ui.js";
import * as settings from "./settings.js";
import { Session, isOwn } from "./session.js";
import { Chat } from "./chat.js";
import { MessageList } from "./messages.js";
import { Composer } from "./composer.js";
import { States, adapterName } from "./states.js";
import { ModelPicker } from "./models.js";
import { Drawer } from "./drawer.js";

const RESTORE_MAX = 1500; // ms

const session = new Session();
const chat = new Chat(session);
const picker = new ModelPicker(session);
const drawer = new Drawer(session, chat);
const list = new MessageList(chat, { edit: (message) => composer.edit(message), newChat });
const composer = new Composer(chat, session, () => list.toEnd());
const states = new States(session, chat, {
  models: () => picker.open(),
  settings: () => drawer.show("#d-memory"),
  report: () => drawer.report(),
  reload: () => reloadAndRegenerate(chat.messages.at(-1)),
  use,
});

function newChat() {
  chat.startNew();
  composer.focus();
}

// The answer waits for the engine, as a question does that was typed while it loads.
function reloadAndRegenerate(answer) {
  if (session.phase === "error") session.load();
  chat.regenerate(answer);
}

// ---- Header

const themes = ["auto", "light", "dark"];

function showTheme() {
  const theme = settings.get("theme") ?? "auto";
  const node = $("#theme");
  label(node, t({ auto: "themeAuto", light: "themeLight", dark: "themeDark" }[theme]));
  $("use", node).setAttribute("href", `#i-${theme}`);
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function showHeader() {
  const { model, info, place } = session;
  const name = session.modelName || t("noModel");
  const tags = place === "tab" ? [model?.bits, model?.bytes ? bytes(model.bytes) : null] : [info?.weights?.split(",")[0]];
  $("#model-name").textContent = name;
  $("#model-more").textContent = tags.filter(Boolean).join(" · ");
  const adapter = adapterName(session) || t(place === "server" ? "placeServer" : session.adapter && !session.adapter.available ? "noAdapterChip" : "unknownAdapter");
  $("#adapter-name").textContent = adapter;
  $("#adapter-chip").title = info?.adapter?.name ?? "";
  const usable = Boolean(session.server.models);
  $("#place-tab").setAttribute("aria-pressed", String(place === "tab"));
  $("#place-server").setAttribute("aria-pressed", String(place === "server"));
  $("#place-server").setAttribute("aria-disabled", String(!usable));
  $("#place-server").title = usable ? "" : t(session.server.reason === "key" ? "serverKey" : "serverNone");
  showWelcome(name);
}

function showWelcome(name) {
  const { model, info, place } = session;
  $("#welcome-title").textContent = t(place === "tab" ? "welcomeTab" : "welcomeServer");
  $("#welcome-privacy").textContent = t(place === "tab" ? "privacyTab" : "privacyServer");
  const note = place === "tab" && model?.kind === "synthetic" || info?.synthetic ? "syntheticNote" : place === "tab" && model?.note === "demo" ? "demoNote" : "modelNote";
  const failed = session.phase === "error" && place === "tab" && isOwn(model); // it may be no model at all
  $("#welcome-note").textContent = session.modelName && !failed ? t(note, { name }) : "";
}

function showConversation() {
  const empty = chat.messages.length === 0;
  $("#welcome").hidden = !empty;
  $("#new-chat").disabled = empty;
}

async function use(place) {
  if (place === session.place) return;
  if (place === "server" && !session.server.models) {
    states.askServer();
    return;
  }
  if (chat.running) chat.stop(); // a question that waits is answered there
  settings.set("place", place);
  await session.use(place);
}

$("#place-tab").addEventListener("click", () => use("tab"));
$("#place-server").addEventListener("click", () => use("server"));
$("#new-chat").addEventListener("click", newChat);
$("#lang").addEventListener("click", () => setLanguage(language() === "zh" ? "en" : "zh"));
$("#theme").addEventListener("click", () => {
  const next = themes[(themes.indexOf(settings.get("theme") ?? "auto") + 1) % themes.length];
  settings.set("theme", next === "auto" ? undefined : next);
  showTheme();
});
$("#cancel-load").addEventListener("click", () => session.cancelLoad());
$("#load").addEventListener("click", () => session.load());
$("#suggestions").addEventListener("click", (event) => {
  const pressed = event.target.closest("button");
  if (!pressed) return;
  chat.ask(pressed.textContent.trim());
  list.toEnd();
  composer.focus();
});

session.on("change", showHeader);
chat.on("conversation", showConversation);
chat.on("finished", (answer) => {
  if (answer.status === "done") announce(t("answerDone", { n: count(answer.tokens ?? 0) }));
  else if (answer.status === "stopped") announce(t("answerStopped"));
  const { info } = session;
  if (answer.status === "done" && answer.speed && answer.tokens >= 8 && info) settings.rememberSpeed(info.adapter.name, info.model, answer.speed);
});
onLanguage(() => {
  showTheme();
  showHeader();
});
translate(document);
composer.focus();
// A storage that does not answer must not keep the page from starting.
await Promise.race([chat.restore(), new Promise((next) => setTimeout(next, RESTORE_MAX))]);
showConversation();
// After the next paint, so that the page is on the screen before anything of the engine is fetched.
requestAnimationFrame(() => setTimeout(() => session.start()));
