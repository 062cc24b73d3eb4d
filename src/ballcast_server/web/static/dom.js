// Create elements. Text is always set as text: a file name or a label is never parsed as HTML.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && typeof value !== "string") element[key] = value;
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const ICONS = {
  muted: "M3 9v6h4l5 5V4L7 9H3z M16 9l5 6 M21 9l-5 6",
  loud: "M3 9v6h4l5 5V4L7 9H3z M16 8c2 2 2 6 0 8 M18.5 5.5c4 4 4 9 0 13",
  screen: "M4 9V4h5 M15 4h5v5 M20 15v5h-5 M9 20H4v-5",
};

// A drawn icon: fonts do not have all signs.
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", class: "drawn", "aria-hidden": "true" }))
    svg.setAttribute(key, value);
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

export const clock = (ms) => {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const pad = (n) => String(n).padStart(2, "0");
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours ? `${hours}:${pad(minutes)}:${pad(seconds % 60)}` : `${minutes}:${pad(seconds % 60)}`;
};

export const percent = (share) => `${Math.round(100 * share)} %`;

export const size = (bytes) =>
  bytes >= 2 ** 30 ? `${(bytes / 2 ** 30).toFixed(1)} GiB` : `${Math.max(0.1, bytes / 2 ** 20).toFixed(1)} MiB`;

let hiding;
export function toast(text) {
  const box = document.getElementById("toast");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => (box.hidden = true), 8000);
}
