// The strip of the whole match: a lane for each action, gaps, what happened, and the moments that mattered.

import { clock, h, percent } from "./dom.js";
import { t } from "./text.js";

const MOMENTS = 20; // at most
const APART_MS = 10_000; // between two moments
const LEAST = 0.05; // expected precision of a moment
const BEFORE_MS = 4000; // a jump goes to before the moment, to see it coming
// How much an action matters when moments are chosen; passes and drives come all the time.
const WEIGHTS = {
  SHOT: 8,
  CROSS: 4,
  "BALL PLAYER BLOCK": 3,
  HEADER: 2,
  "PLAYER SUCCESSFUL TACKLE": 2,
  "HIGH PASS": 1,
  OUT: 1,
  "THROW IN": 1,
};
const HAPPENED = 100; // weight of an actual shot or cross, above all expectations

// The moments that mattered, in order of time: {at_ms, label, expected, lead_ms?, happened}.
export function moments(track) {
  const found = [];
  for (const { at_ms, predictions } of track.all.anticipations) {
    for (const { label, position_ms, confidence } of predictions) {
      if (!(label in WEIGHTS) || confidence < LEAST) continue;
      found.push({ at_ms: position_ms, label, expected: confidence, made_ms: at_ms, weight: WEIGHTS[label] * confidence });
    }
  }
  for (const event of track.events ?? []) {
    if (event.label !== "SHOT" && event.label !== "CROSS") continue;
    const first = track.judged.seen.get(event);
    const lead_ms = first === undefined ? null : event.position_ms - first;
    found.push({ at_ms: event.position_ms, label: event.label, happened: true, lead_ms, weight: HAPPENED + WEIGHTS[event.label] });
  }
  found.sort((a, b) => b.weight - a.weight || a.at_ms - b.at_ms);
  const chosen = [];
  for (const moment of found) {
    if (chosen.length === MOMENTS) break;
    if (chosen.every((other) => Math.abs(other.at_ms - moment.at_ms) >= APART_MS)) chosen.push(moment);
  }
  return chosen.sort((a, b) => a.at_ms - b.at_ms);
}

export class Overview {
  // names: of the lanes. index: label → lane. seek: called with a time in ms.
  constructor(names, index, seek) {
    this.names = names;
    this.index = index;
    this.seek = seek;
    this.chosen = [];
    this.duration = 0;
    this.canvas = h("canvas", { class: "strip", "aria-hidden": "true" });
    this.pen = this.canvas.getContext("2d");
    this.picture = document.createElement("canvas"); // all but the current time
    this.slider = h(
      "div",
      {
        class: "overview",
        role: "slider",
        tabindex: "0",
        "aria-label": t("overview.label"),
        "aria-valuemin": "0",
        "aria-valuemax": "0",
        "aria-valuenow": "0",
        onpointerdown: (event) => this._drag(event),
        onpointermove: (event) => event.buttons & 1 && this._drag(event),
        onkeydown: (event) => this._key(event),
      },
      this.canvas,
    );
    this.list = h("ol", { class: "moments", "aria-label": t("overview.moments") });
    this.gapList = h("ul", { class: "gaps quiet small", "aria-label": t("overview.gaps"), hidden: true });
    this.element = h("div", { class: "overview-panel" }, this.slider, this.list, this.gapList);
    this.observer = new ResizeObserver(() => this._resize());
    this.observer.observe(this.canvas);
  }

  stop() {
    this.observer.disconnect();
  }

  _drag(event) {
    const box = this.canvas.getBoundingClientRect();
    this.seek(((event.clientX - box.left) / box.width) * this.duration);
  }

  _key(event) {
    const { ctrlKey, metaKey, altKey } = event;
    if (ctrlKey || metaKey || altKey) return;
    if (event.key === "Home") this.seek(0);
    else if (event.key === "End") this.seek(this.duration);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Go to the next (1) or previous (−1) moment.
  jump(now, way) {
    const from = this.chosen.map((moment) => Math.max(0, moment.at_ms - BEFORE_MS));
    const to = way > 0 ? from.find((ms) => ms > now + 500) : from.findLast((ms) => ms < now - 500);
    if (to !== undefined) this.seek(to);
  }

  _resize() {
    this.ratio = devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.picture]) {
      canvas.width = Math.round(this.canvas.clientWidth * this.ratio);
      canvas.height = Math.round(this.canvas.clientHeight * this.ratio);
    }
    this.stale = true;
  }

  // Compute all but the current time anew. Returns the milliseconds it took.
  update(track, duration, known, shown, colours) {
    const began = performance.now();
    this.duration = duration;
    // Labels may be of a longer video, of which this is a part.
    this.chosen = moments(track).filter(({ label, at_ms }) => shown.has(label) && at_ms <= duration);
    this._chips();
    this._gaps(track.gaps);
    if (!this.ratio) this._resize();
    this._paint(track, known, shown, colours);
    this.stale = false;
    return performance.now() - began;
  }

  _chips() {
    const text = ({ at_ms, label, expected, happened, lead_ms }) => {
      const values = { time: clock(at_ms), action: this.names[this.index.get(label)] };
      if (!happened) return t("overview.expected", { ...values, percent: percent(expected) });
      if (lead_ms === null) return t("overview.happened", values);
      return t("overview.foreseen", { ...values, lead: (lead_ms / 1000).toFixed(1) });
    };
    const words = this.chosen.map(text);
    const key = words.join("|");
    if (key === this.key) return; // a focused button stays
    this.key = key;
    const chips = this.chosen.map((moment, i) =>
      h(
        "li",
        {},
        h(
          "button",
          {
            class: `moment action-${this.index.get(moment.label)}${moment.happened ? " happened" : ""}`,
            onclick: () => this.seek(Math.max(0, moment.at_ms - BEFORE_MS)),
          },
          words[i],
        ),
      ),
    );
    this.list.replaceChildren(...(chips.length ? chips : [h("li", { class: "quiet small" }, t("overview.none"))]));
  }

  _gaps(gaps) {
    this.gapList.hidden = !gaps.length;
    this.gapList.replaceChildren(
      ...gaps.map(({ from, to, reason }) =>
        h("li", {}, t("overview.gap", { from: clock(from), to: clock(to), reason })),
      ),
    );
  }

  _x(ms) {
    return this.duration ? (ms / this.duration) * this.picture.width : 0;
  }

  _paint(track, known, shown, colours) {
    const pen = this.picture.getContext("2d");
    const { width, height } = this.picture;
    const top = 12 * this.ratio;
    const lane = (height - top) / this.names.length;
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = colours.ground;
    pen.fillRect(0, top, width, height - top);
    // The most precise prediction of each pixel column and lane.
    const best = this.names.map(() => new Float32Array(width + 1));
    for (const { predictions } of track.visible.anticipations) {
      for (const { label, position_ms, confidence } of predictions) {
        if (!shown.has(label)) continue;
        const row = best[this.index.get(label)];
        const x = Math.max(0, Math.min(width, Math.round(this._x(position_ms))));
        if (confidence > row[x]) row[x] = confidence;
      }
    }
    const wide = Math.max(1, this.ratio, this._x(500));
    best.forEach((row, i) => {
      pen.fillStyle = colours.actions[i];
      for (let x = 0; x <= width; x += 1) {
        if (!row[x]) continue;
        pen.globalAlpha = 0.25 + 0.75 * Math.min(1, row[x]);
        const tall = lane * (0.35 + 0.6 * Math.min(1, row[x]));
        pen.fillRect(x, top + (i + 1) * lane - tall, wide, tall);
      }
    });
    pen.globalAlpha = 1;
    this._unknown(pen, track, known, colours, top);
    for (const { at_ms, label, happened } of this.chosen) this._mark(pen, at_ms, this.index.get(label), happened, colours, top);
  }

  // Gaps, hatched, and what is not computed yet.
  _unknown(pen, track, known, colours, top) {
    const { width, height } = this.picture;
    for (const { from, to } of track.gaps) {
      const [left, right] = [this._x(from), Math.max(this._x(to), this._x(from) + 3 * this.ratio)];
      pen.save();
      pen.beginPath();
      pen.rect(left, 0, right - left, height);
      pen.clip();
      pen.fillStyle = colours.panel;
      pen.fillRect(left, 0, right - left, height);
      pen.strokeStyle = colours.bad;
      pen.lineWidth = this.ratio;
      pen.beginPath();
      for (let x = left - height; x < right; x += 5 * this.ratio) {
        pen.moveTo(x, height);
        pen.lineTo(x + height, 0);
      }
      pen.stroke();
      pen.restore();
    }
    if (known >= this.duration) return;
    pen.fillStyle = colours.line;
    pen.globalAlpha = 0.35;
    pen.fillRect(this._x(known), top, width, height - top);
    pen.globalAlpha = 1;
  }

  // A moment: a triangle above its time, filled if it happened.
  _mark(pen, at_ms, lane, happened, colours, top) {
    const x = this._x(at_ms);
    const size = 5 * this.ratio;
    pen.fillStyle = pen.strokeStyle = colours.actions[lane];
    pen.lineWidth = 1.5 * this.ratio;
    pen.beginPath();
    pen.moveTo(x - size, top - 2 * size);
    pen.lineTo(x + size, top - 2 * size);
    pen.lineTo(x, top - this.ratio);
    pen.closePath();
    if (happened) pen.fill();
    else pen.stroke();
  }

  // The picture and the current time.
  draw(now, colours) {
    const pen = this.pen;
    const { width, height } = this.canvas;
    if (!width) return;
    pen.clearRect(0, 0, width, height);
    pen.drawImage(this.picture, 0, 0);
    pen.fillStyle = colours.accent;
    pen.fillRect(Math.round(this._x(now)) - this.ratio, 0, 2 * this.ratio, height);
  }

  // For who does not see it.
  speak(now) {
    const set = (name, value) => this.slider.getAttribute(name) === value || this.slider.setAttribute(name, value);
    set("aria-valuemax", String(Math.round(this.duration / 1000)));
    set("aria-valuenow", String(Math.round(Math.min(now, this.duration) / 1000)));
    set("aria-valuetext", t("overview.value", { now: clock(now), duration: clock(this.duration) }));
  }
}
