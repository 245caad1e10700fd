// Runs before the first paint: the chosen theme and language must not flash.
(() => {
  let saved = {};
  try {
    saved = JSON.parse(localStorage.getItem("pagelight.settings")) || {};
  } catch {
    // No storage, or not ours: the defaults hold.
  }
  const root = document.documentElement;
  if (saved.theme === "light" || saved.theme === "dark") root.dataset.theme = saved.theme;
  const chinese = saved.lang ? saved.lang === "zh" : /^zh\b/i.test(navigator.language || "");
  if (chinese) {
    root.lang = "zh-CN";
    root.dataset.pending = ""; // hides the English of the file until the module has set the strings
  }
  if (saved.drawer && innerWidth >= 1000) root.dataset.drawer = "open";
})();
