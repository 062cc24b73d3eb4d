// The watch view: a video or a stream, and what one or two models expect, on the time axis and over the whole match.

import * as api from "./api.js";
import { Axis } from "./axis.js";
import { Controls } from "./controls.js";
import { clock, h, percent, toast } from "./dom.js";
import { Overview } from "./overview.js";
import { Filter, legend, PrecisionSlider, Score } from "./panel.js";
import { actionNames, t } from "./text.js";
import { colours } from "./theme.js";
import { Track } from "./track.js";

const TOLERANCES = [500, 1000, 2000];
const ON_STAGE = 3; // predictions listed over the video

// The axis, overview and score of one model.
class TrackView {
  constructor(watch, about) {
    this.track = new Track(about);
    this.score = new Score();
    this.canvas = h("canvas", { class: "axis", role: "img" });
    this.overview = new Overview(watch.names, watch.index, (ms) => watch.player.seek(ms));
    this.name = h("h3", { class: "model-name", hidden: true });
    this.heading = h("h2", {});
    this.panel = h("div", { class: "panel axis-panel" }, this.name, this.canvas);
    this.strip = h("div", { class: "panel strip-panel" }, this.overview.element);
    this.card = h("section", { class: "card" }, this.heading, this.score.element);
    this.key = null; // of what the overview shows
  }

  start(watch) {
    this.axis = new Axis(this.canvas, watch.names, watch.about.horizon_ms);
  }

  title(name) {
    this.name.textContent = name;
    this.name.hidden = !name;
    this.heading.firstChild?.remove();
    this.heading.prepend(h("span", {}, name ? t("score.titleOf", { model: name }) : t("score.title")));
    this.canvas.setAttribute("aria-label", t("axis.label", { model: name || t("watch.this") }));
  }
}

export class Watch {
  constructor(about, player) {
    this.about = about;
    this.player = player;
    this.names = actionNames(about);
    this.index = new Map(about.actions.map((label, i) => [label, i]));
    this.events = null;
    this.tolerance = 1000;
    this.known = Infinity; // processed up to this time, in ms
    this.stopping = [];
    this.filter = new Filter(about);
    this.precision = new PrecisionSlider((least) => this.views?.forEach(({ track }) => track.select(least)));
    this.third = h("ol", { class: "third", "aria-label": t("watch.next") });
    this.note = h("p", { class: "note", role: "status", hidden: true });
    this.badge = h("span", { class: "badge", "data-testid": "badge" });
    this.origin = h("p", { class: "origin", "data-testid": "origin", hidden: true });
    this.tools = h("div", { class: "tools" });
    this.toleranceSelect = h(
      "select",
      { "aria-label": t("score.tolerance"), onchange: (event) => this.judge(this.events, Number(event.target.value)) },
      TOLERANCES.map((ms) =>
        h("option", { value: String(ms), selected: ms === this.tolerance }, t("score.within", { seconds: ms / 1000 })),
      ),
    );
    this.legend = legend();
    this.axes = h("div", { class: "tracks" });
    this.strips = h("div", { class: "tracks" });
    this.scores = h("div", { class: "tracks" });
    this.left = h("section", { class: "left" });
    this.controls = new Controls(player, this.left);
    this.left.append(
      h("div", { class: "stage" }, player.element, this.note, this.badge, this.third),
      this.controls.element,
      this.axes,
      this.strips,
      this.origin,
    );
    this.element = h(
      "div",
      { class: "watch" },
      this.left,
      h(
        "aside",
        {},
        this.scores,
        h("section", { class: "card" }, this.legend),
        h("section", { class: "card" }, h("h2", {}, t("precision.title")), this.precision.element),
        h("section", { class: "card" }, h("h2", {}, t("actions.title")), this.filter.element),
        h("section", { class: "card" }, this.tools),
      ),
    );
    this.setModels(about.models?.length ? about.models.slice(0, 1) : [{}]);
  }

  get track() {
    return this.views[0].track;
  }

  // Show one model or two; abouts: what is known of each.
  setModels(abouts) {
    this.views = abouts.map((about) => new TrackView(this, about));
    this.axes.replaceChildren(...this.views.map((view) => view.panel));
    this.strips.replaceChildren(...(this.player.live ? [] : this.views.map((view) => view.strip)));
    this.scores.replaceChildren(...this.views.map((view) => view.card));
    this.left.classList.toggle("compared", abouts.length > 1);
    if (this.colours) for (const view of this.views) view.start(this);
    this.describe();
    this.judge();
  }

  // Names, origins and precision, which may be known only with the result.
  describe() {
    const two = this.views.length > 1;
    for (const [i, view] of this.views.entries()) {
      view.title(two ? view.track.model || t(i ? "watch.other" : "watch.this") : "");
      if (i === 0) view.heading.append(this.toleranceSelect);
    }
    const origins = this.views
      .map(({ track }) => track)
      .filter(({ origin }) => origin)
      .map(({ model, origin }) => (two ? t("origin.of", { model, origin }) : t("origin", { origin })));
    this.origin.textContent = [...new Set(origins)].join(" ");
    this.origin.hidden = !origins.length;
    this.precision.offer(this.track.precision);
  }

  start() {
    const palette = colours((found) => {
      this.colours = found;
      for (const view of this.views) view.key = null;
    });
    this.colours = palette.now;
    for (const view of this.views) view.start(this);
    this.stopping.push(palette.stop);
    const frame = () => {
      this.draw();
      this.frame = requestAnimationFrame(frame);
    };
    frame();
    this.figures();
    const figures = setInterval(() => this.figures(), 250);
    this.stopping.push(() => clearInterval(figures));
  }

  stop() {
    cancelAnimationFrame(this.frame);
    for (const stop of this.stopping) stop();
    for (const view of this.views) view.overview.stop();
    this.player.stop();
  }

  judge(events = this.events, tolerance = this.tolerance) {
    this.events = events;
    this.tolerance = tolerance;
    for (const { track } of this.views) track.judge(events, tolerance);
    if (this.legend && !this.views.some((view) => view.known === (events !== null))) this.legend.open = events === null;
    for (const view of this.views) view.known = events !== null;
  }

  draw() {
    const { now } = this.player;
    for (const view of this.views) {
      view.track.update();
      view.axis.draw({
        now,
        timeline: view.track.visible,
        judged: view.track.judged,
        shown: this.filter.shown,
        index: this.index,
        colours: this.colours,
        gaps: view.track.gaps,
      });
      if (!this.player.live) this.overviewOf(view).draw(now, this.colours);
    }
  }

  // The overview of a view, painted anew if anything but the current time has changed.
  overviewOf(view) {
    const { track, overview } = view;
    const { duration } = this.player;
    const key = `${track.all.changes} ${track.least} ${this.filter.changes} ${duration} ${this.tolerance} ${this.events?.length}`;
    if (key !== view.key || overview.stale) {
      // While a long video is computed, once a second is enough.
      if (this.known !== Infinity && performance.now() < (view.paintAt ?? 0)) return overview;
      view.paintAt = performance.now() + 1000;
      view.key = key;
      overview.update(track, duration, this.known, this.filter.shown, this.colours);
      this.precision.explain(this.views.map((other) => other.track), this.about.actions, this.names);
      if (performance.getEntriesByName("result").length) performance.measure("overview", "result");
      performance.clearMarks("result");
    }
    return overview;
  }

  // Update what need not follow every frame.
  figures() {
    const { player } = this;
    const { now } = player;
    this.controls.show();
    if (player.failed && !player.live) this.showNote(this.cannotPlay());
    else if (!player.live) this.showGap(now);
    this.computing(now);
    this.expect(now);
    for (const { track, score, overview } of this.views) {
      score.show(track.judged.score(now, this.filter.shown), this.tolerance, this.events !== null);
      overview.speak(now);
    }
    this.filter.count(this.track.judged, now);
  }

  cannotPlay() {
    return t("watch.cannotPlay", { codec: this.codec ? t("watch.codec", { codec: this.codec }) : "" });
  }

  showGap(now) {
    const gap = this.track.gaps.find(({ from, to }) => from <= now && now < to);
    if (gap) this.showNote(t("watch.gap", { reason: gap.reason }));
    else if (this.inGap) this.showNote("");
    this.inGap = Boolean(gap);
  }

  computing(now) {
    if (this.player.live) return;
    const early = this.track.all.anticipations[0]?.at_ms ?? 5000;
    if (this.known === Infinity) this.badge.textContent = now < early ? t("watch.start") : "";
    else this.badge.textContent = t("watch.known", { time: clock(this.known) });
    this.badge.hidden = !this.badge.textContent;
  }

  // The lower third: the surest predictions, in order of time.
  expect(now) {
    const { visible } = this.track;
    const latest = visible.anticipations[visible.index(now)];
    const fresh = latest && now - latest.at_ms < this.about.horizon_ms ? latest.predictions : [];
    const coming = fresh
      .filter((p) => p.position_ms > now && this.filter.shown.has(p.label))
      .sort((a, b) => b.confidence - a.confidence)
      .slice(0, ON_STAGE)
      .sort((a, b) => a.position_ms - b.position_ms);
    this.third.replaceChildren(
      ...coming.map((p) => {
        const i = this.index.get(p.label);
        return h(
          "li",
          { class: `action-${i}` },
          h("span", { class: "name" }, this.names[i]),
          h("span", { class: "when" }, t("watch.in", { seconds: ((p.position_ms - now) / 1000).toFixed(1) })),
          h("span", { class: "sure" }, percent(p.confidence)),
        );
      }),
    );
  }

  showNote(text) {
    if (this.note.textContent !== text) this.note.textContent = text; // announced once
    this.note.hidden = !text;
  }

  key({ key, shiftKey }) {
    const { player, precision, controls } = this;
    const [{ overview }] = this.views;
    const step = shiftKey ? 1000 : 5000;
    const actions = {
      " ": () => player.toggle(),
      ArrowLeft: () => player.seek(player.now - step),
      ArrowRight: () => player.seek(player.now + step),
      PageDown: () => player.seek(player.now + 60_000),
      PageUp: () => player.seek(player.now - 60_000),
      n: () => overview.jump(player.now, 1),
      p: () => overview.jump(player.now, -1),
      "[": () => precision.step(-5),
      "]": () => precision.step(5),
      "<": () => controls.faster(-1),
      ">": () => controls.faster(1),
      m: () => controls.mute(),
      f: () => controls.fill(),
      a: () => this.filter.all(),
    };
    if (/^[0-9]$/.test(key)) this.filter.toggle((Number(key) + 9) % 10);
    else if (key in actions) actions[key]();
    else return false;
    return true;
  }

  // Load the actual events; labels that cannot be read are reported, and the view works without them.
  async readActual(address) {
    try {
      const { known, events } = await api.get(`${address}/actual`);
      this.judge(known ? events : null);
    } catch (error) {
      toast(error.message);
    }
  }
}
