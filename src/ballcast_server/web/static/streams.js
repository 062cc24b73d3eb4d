// The streams of the server: what each does, and a form that adds, changes and removes them.

import { get, put, remove } from "./api.js";
import { h, percent, toast } from "./dom.js";
import { FOLLOWED } from "./events.js";
import { actionNames, t } from "./text.js";
import "./theme.js";

const list = document.getElementById("streams");
const form = document.getElementById("form");
const EVERY_MS = 2000;

document.title = t("streams.title");

const about = await get("/api/about");
const names = actionNames(about);
const thresholds = about.actions.map((action, i) =>
  h("input", { type: "number", min: "1", max: "100", step: "1", inputmode: "numeric", "data-action": action, id: `alert-${i}` }),
);
document
  .getElementById("actions")
  .append(...thresholds.map((input, i) => h("label", { for: input.id }, names[i], input)));

function facts(stream) {
  const found = [];
  if (stream.forecasts) found.push(t("streams.latency", { ms: stream.latency_ms.toFixed(0) }));
  if (stream.behind_ms) found.push(t("streams.behind", { s: (stream.behind_ms / 1000).toFixed(1) }));
  found.push(t("streams.counts", stream));
  const alerts = Object.entries(stream.alerts).map(([action, least]) => `${names[about.actions.indexOf(action)]} ${percent(least)}`);
  if (alerts.length) found.push(t(stream.clips ? "streams.alertsWithClips" : "streams.alertsOf", { actions: alerts.join(", ") }));
  return found.join(" · ");
}

function row(stream) {
  const { name, state, message } = stream;
  const buttons = stream.fixed
    ? [h("span", { class: "quiet small" }, t("streams.fixed"))]
    : [
        h("button", { onclick: () => edit(stream), "aria-label": t("streams.changeOne", { name }) }, t("streams.change")),
        h("button", { onclick: () => drop(name), "aria-label": t("streams.removeOne", { name }) }, t("streams.remove")),
      ];
  return h(
    "li",
    { class: "card stream-row", "data-name": name, "data-state": state },
    h(
      "div",
      { class: "top" },
      h("span", { class: `dot ${state}`, "aria-hidden": "true" }),
      h("strong", { class: "cut" }, name),
      h("a", { class: "button", href: `/#/stream/${encodeURIComponent(name)}` }, t("streams.watch")),
      ...buttons,
    ),
    h("p", { class: "small state" }, message ? `${state}: ${message}` : state),
    h("p", { class: "small quiet" }, facts(stream)),
    stream.last_error ? h("p", { class: "small bad" }, t("streams.lastError", { error: stream.last_error })) : null,
  );
}

let shown = "";
async function refresh() {
  const streams = await get("/api/streams?details=true");
  const now = JSON.stringify(streams);
  if (now === shown) return;
  shown = now;
  const focus = document.activeElement?.getAttribute?.("aria-label");
  list.replaceChildren(...streams.map(row));
  if (focus) list.querySelector(`[aria-label="${CSS.escape(focus)}"]`)?.focus();
  const running = streams.filter((stream) => FOLLOWED.includes(stream.state)).length;
  document.getElementById("summary").textContent = streams.length
    ? t("streams.summary", { count: streams.length, running })
    : t("streams.none");
}

function edit(stream) {
  form.elements.name.value = stream.name;
  form.elements.always.checked = stream.always;
  form.elements.clips.checked = stream.clips;
  for (const input of thresholds) {
    const least = stream.alerts[input.dataset.action];
    input.value = least ? String(Math.round(100 * least)) : "";
  }
  form.elements.address.value = ""; // the server does not disclose it: it may hold a password
  form.elements.address.focus();
}

async function drop(name) {
  try {
    await remove(`/api/streams/${encodeURIComponent(name)}`);
    await refresh();
  } catch (error) {
    toast(error.message);
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const set = thresholds.filter((input) => input.value);
  const tree = {
    address: form.elements.address.value.trim(),
    always: form.elements.always.checked,
    clips: form.elements.clips.checked,
    alerts: Object.fromEntries(set.map((input) => [input.dataset.action, Number(input.value) / 100])),
  };
  try {
    await put(`/api/streams/${encodeURIComponent(form.elements.name.value)}`, new Blob([JSON.stringify(tree)], { type: "application/json" }));
    form.reset();
    await refresh();
  } catch (error) {
    toast(error.message);
  }
});

async function poll() {
  try {
    if (!document.hidden) await refresh();
  } catch (error) {
    toast(error.message);
  }
  setTimeout(poll, EVERY_MS);
}
poll();
