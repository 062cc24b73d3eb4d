// The words of the page, from strings.js.

import { STRINGS } from "./strings.js";

// The text of a key, with its {names} filled in.
export function t(key, values = {}) {
  const text = STRINGS[key];
  if (text === undefined) throw new Error(`no text for ${key}`);
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

// Fill the words of a page's fixed elements: data-t is the text, data-t-title and data-t-label these attributes.
export function fill(root = document) {
  for (const element of root.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const element of root.querySelectorAll("[data-t-title]")) element.title = t(element.dataset.tTitle);
  for (const element of root.querySelectorAll("[data-t-label]"))
    element.setAttribute("aria-label", t(element.dataset.tLabel));
}

// The short names of the actions, in the server's order: translated, or as the server has them.
export function actionNames(about) {
  const own = STRINGS["action.names"].split(",").map((name) => name.trim());
  return own.length === about.names.length ? own : about.names;
}

fill();
