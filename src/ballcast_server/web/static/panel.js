// The side panel: running score, legend, expected precision and action filter.

import { h, percent } from "./dom.js";
import { actionNames, t } from "./text.js";

const KEYS = "1234567890";

export class Filter {
  constructor(about) {
    this.labels = about.actions;
    this.names = actionNames(about);
    this.shown = new Set(about.actions);
    this.changes = 0;
    this.counts = about.actions.map(() => h("span", { class: "count" }));
    this.buttons = about.actions.map((label, i) =>
      h(
        "button",
        {
          class: `action action-${i}`,
          "aria-pressed": "true",
          "data-label": label,
          title: t("actions.toggle", { key: KEYS[i] }),
          onclick: () => this.toggle(i),
        },
        h("kbd", { "aria-hidden": "true" }, KEYS[i]),
        h("span", { class: "name" }, this.names[i]),
        this.counts[i],
      ),
    );
    this.element = h("div", { class: "filter", role: "group", "aria-label": t("actions.shown") }, this.buttons);
  }

  toggle(i) {
    const label = this.labels[i];
    if (!this.shown.delete(label)) this.shown.add(label);
    this._update();
  }

  all() {
    this.shown = new Set(this.labels);
    this._update();
  }

  _update() {
    this.changes += 1;
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(this.shown.has(this.labels[i]))));
  }

  // Hits of all judged predictions, for each action.
  count(judged, now) {
    const found = judged.counts(now);
    this.labels.forEach((label, i) => {
      const [hits, all] = found.get(label) ?? [0, 0];
      this.counts[i].textContent = all ? `${hits}/${all}` : "";
    });
  }
}

// The slider of the expected precision.
export class PrecisionSlider {
  // changed: called with the least expected precision, 0 to 1.
  constructor(changed) {
    this.changed = changed;
    this.value = h("output", { class: "precision-value", for: "precision" });
    this.note = h("p", { class: "quiet small" });
    this.hidden = h("p", { class: "quiet small", hidden: true });
    this.touched = false;
    this.input = h("input", {
      type: "range",
      id: "precision",
      min: "0",
      max: "90",
      step: "1",
      value: "0",
      oninput: () => {
        this.touched = true;
        this._update();
      },
    });
    this.element = h(
      "div",
      { class: "precision" },
      h("label", { for: "precision" }, t("precision.label")),
      h("div", { class: "precision-row" }, this.input, this.reset()),
      this.value,
      this.note,
      this.hidden,
    );
  }

  reset() {
    const again = () => {
      this.touched = false;
      this.offer(this.precision);
    };
    return h("button", { class: "small-button", onclick: again }, t("precision.reset"));
  }

  // Take the default of a model, unless the user has chosen.
  offer(precision) {
    this.precision = precision;
    this.note.textContent = precision.measured
      ? t("precision.measured", { tolerance: precision.tolerance / 1000 })
      : t("precision.assumed");
    if (!this.touched) this.input.value = String(Math.floor(100 * precision.default));
    this._update();
  }

  step(by) {
    this.touched = true;
    this.input.value = String(Number(this.input.value) + by);
    this._update();
  }

  get least() {
    return Number(this.input.value) / 100;
  }

  _update() {
    const text = this.least ? t("precision.value", { percent: percent(this.least) }) : t("precision.all");
    this.value.textContent = text;
    this.input.setAttribute("aria-valuetext", text);
    this.changed(this.least);
  }

  // Name the actions of which nothing is sure enough, though they were predicted. tracks: of all models.
  explain(tracks, labels, names) {
    const [all, kept] = [new Set(), new Set()];
    for (const track of tracks) {
      for (const { predictions } of track.all.anticipations) for (const p of predictions) all.add(p.label);
      for (const { predictions } of track.visible.anticipations) for (const p of predictions) kept.add(p.label);
    }
    const gone = names.filter((_, i) => all.has(labels[i]) && !kept.has(labels[i]));
    this.hidden.hidden = !gone.length;
    this.hidden.textContent = gone.length ? t("precision.hidden", { actions: gone.join(", ") }) : "";
  }
}

// What the marks of the axis mean; `known`: there are labels.
export function legend() {
  const row = (mark, key) => h("li", {}, h("span", { class: `mark ${mark}`, "aria-hidden": "true" }), t(`legend.${key}`));
  return h(
    "details",
    { class: "legend" },
    h("summary", {}, t("legend.title")),
    h(
      "ul",
      {},
      ["disc", "ring", "hit", "miss", "event", "now", "gap"].map((mark) => row(mark, mark)),
    ),
  );
}

export class Score {
  constructor() {
    this.figures = {};
    const figure = (key, name) => {
      this.figures[key] = h("span", { class: "figure" }, t("score.nothing"));
      return h("div", { class: "stat", title: t(`score.${name}.hint`) }, this.figures[key], h("span", { class: "what" }, t(`score.${name}`)));
    };
    this.note = h("p", { class: "quiet small" });
    this.stats = h(
      "div",
      { class: "stats" },
      figure("right", "hits"),
      figure("confidence", "confidence"),
      figure("seen", "seen"),
      figure("lead", "lead"),
    );
    this.element = h("div", { class: "score", "data-testid": "score" }, this.stats, this.note);
  }

  show(total, tolerance, known) {
    const { hits, misses, confidence, events, seen, lead } = total;
    const judged = hits + misses;
    this.stats.hidden = !known;
    const set = (key, text) => (this.figures[key].textContent = text);
    const share = (part, all) => (all ? percent(part / all) : t("score.nothing"));
    set("right", share(hits, judged));
    set("confidence", share(confidence, judged));
    set("seen", share(seen, events));
    set("lead", seen ? t("score.lead.value", { seconds: (lead / seen / 1000).toFixed(1) }) : t("score.nothing"));
    this.note.textContent = known
      ? t("score.counts", { hits, judged, seen, events, tolerance: tolerance / 1000 })
      : t("score.noLabels");
  }
}
