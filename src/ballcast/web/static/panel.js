// The side panel: running score and action filter.

import { h, percent } from "./dom.js";

const KEYS = "1234567890";

export class Filter {
  constructor(about) {
    this.labels = about.actions;
    this.shown = new Set(about.actions);
    this.counts = about.actions.map(() => h("span", { class: "count" }));
    this.buttons = about.actions.map((label, i) =>
      h(
        "button",
        {
          class: `action action-${i}`,
          "aria-pressed": "true",
          "data-label": label,
          title: `Show or hide (${KEYS[i]})`,
          onclick: () => this.toggle(i),
        },
        h("kbd", {}, KEYS[i]),
        h("span", { class: "name" }, about.names[i]),
        this.counts[i],
      ),
    );
    this.element = h("div", { class: "filter", role: "group", "aria-label": "Actions shown" }, this.buttons);
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
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(this.shown.has(this.labels[i]))));
  }

  // Hits of all judged predictions, for each action.
  count(judged, now) {
    this.labels.forEach((label, i) => {
      const { hits, misses } = judged.score(now, new Set([label]));
      this.counts[i].textContent = hits + misses ? `${hits}/${hits + misses}` : "";
    });
  }
}

export class Score {
  constructor() {
    this.figures = {};
    const figure = (key, name, title) => {
      this.figures[key] = h("span", { class: "figure" }, "–");
      return h("div", { class: "stat", title }, this.figures[key], h("span", { class: "what" }, name));
    };
    this.note = h("p", { class: "quiet small" });
    this.element = h(
      "div",
      { class: "score", "data-testid": "score" },
      h(
        "div",
        { class: "stats" },
        figure("right", "hits", "Share of the predictions whose time has passed"),
        figure("confidence", "mean confidence", "Of the same predictions; equal to the hits if well calibrated"),
        figure("seen", "events predicted", "Share of the actual events that at least one forecast predicted"),
        figure("lead", "lead time", "From the first forecast that predicted an event to the event, on average"),
      ),
      this.note,
    );
  }

  show(total, tolerance, known) {
    const { hits, misses, confidence, events, seen, lead } = total;
    const judged = hits + misses;
    const set = (key, text) => (this.figures[key].textContent = text);
    set("right", judged ? percent(hits / judged) : "–");
    set("confidence", judged ? percent(confidence / judged) : "–");
    set("seen", events ? percent(seen / events) : "–");
    set("lead", seen ? `${(lead / seen / 1000).toFixed(1)} s` : "–");
    this.note.textContent = known
      ? `${hits} of ${judged} predictions, ${seen} of ${events} actions; a hit is the same action within ` +
        `± ${tolerance / 1000} s.`
      : "There are no labels: without labels nothing is judged.";
  }
}
