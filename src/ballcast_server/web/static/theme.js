// Light or dark theme: the system's preference, unless the user has chosen one here.

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

export function switchTheme() {
  const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

// The current palette, for drawing on a canvas; `changed` is called with the new one when it changes.
export function colours(changed = () => {}) {
  const read = () => {
    const style = getComputedStyle(root);
    const value = (name) => style.getPropertyValue(name).trim();
    const names = ["ground", "panel", "line", "ink", "quiet", "accent", "good", "bad"];
    const found = Object.fromEntries(names.map((name) => [name, value(`--${name}`)]));
    found.actions = Array.from({ length: 10 }, (_, i) => value(`--action-${i}`));
    return found;
  };
  const notify = () => changed(read());
  const observer = new MutationObserver(notify);
  observer.observe(root, { attributes: true, attributeFilter: ["data-theme"] });
  dark.addEventListener("change", notify);
  return {
    now: read(),
    stop: () => {
      observer.disconnect();
      dark.removeEventListener("change", notify);
    },
  };
}

document.getElementById("theme")?.addEventListener("click", switchTheme);
