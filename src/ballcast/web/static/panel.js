// Beside the picture: the running score, the filter of actions, and what can be done with the results.

import { h, percent } from "./dom.js";

const KEYS = "1234567890";

export class Filter {
  // changed: called when somebody shows or hides an action.
  constructor(about, changed) {
    this.labels = about.actions;
    this.shown = new Set(about.actions);
    this.changed = changed;
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
    this._tell();
  }

  all() {
    this.shown = new Set(this.labels);
    this._tell();
  }

  _tell() {
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(this.shown.has(this.labels[i]))));
    this.changed();
  }

  // Right of all judged, for each action.
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
        figure("right", "came true", "Of the predictions whose time has passed"),
        figure("said", "was said", "Their mean confidence: equal to the first figure if it is honest"),
        figure("seen", "seen coming", "Of the actions that happened, those that at least one moment foresaw"),
        figure("lead", "ahead", "How long before, at the first moment that foresaw it, on average"),
      ),
      this.note,
    );
  }

  show(total, tolerance, known) {
    const { hits, misses, said, events, seen, lead } = total;
    const judged = hits + misses;
    const set = (key, text) => (this.figures[key].textContent = text);
    set("right", judged ? percent(hits / judged) : "–");
    set("said", judged ? percent(said / judged) : "–");
    set("seen", events ? percent(seen / events) : "–");
    set("lead", seen ? `${(lead / seen / 1000).toFixed(1)} s` : "–");
    this.note.textContent = known
      ? `${hits} of ${judged} predictions, ${seen} of ${events} actions; right is the same action within ` +
        `${tolerance / 1000} s either way.`
      : "What really happens is not known here: without labels nothing is judged.";
  }
}
