// Light or dark: as the system prefers, until somebody chooses here.

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

export function switchTheme() {
  const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

// The palette as it is now, for what is drawn and not styled; `changed` is called when it is another one.
export function colours(changed = () => {}) {
  const read = () => {
    const style = getComputedStyle(root);
    const value = (name) => style.getPropertyValue(name).trim();
    const names = ["ground", "panel", "line", "ink", "quiet", "accent", "good", "bad"];
    const found = Object.fromEntries(names.map((name) => [name, value(`--${name}`)]));
    found.actions = Array.from({ length: 10 }, (_, i) => value(`--action-${i}`));
    return found;
  };
  const tell = () => changed(read());
  const observer = new MutationObserver(tell);
  observer.observe(root, { attributes: true, attributeFilter: ["data-theme"] });
  dark.addEventListener("change", tell);
  return {
    now: read(),
    stop: () => {
      observer.disconnect();
      dark.removeEventListener("change", tell);
    },
  };
}

document.getElementById("theme")?.addEventListener("click", switchTheme);
