// The watch view: a video with the results of its job, or a stream, and the predictions on the time axis.

import * as api from "./api.js";
import { Axis } from "./axis.js";
import { clock, h, percent, toast } from "./dom.js";
import { follow } from "./events.js";
import { Judged, Timeline } from "./judge.js";
import { Filter, Score } from "./panel.js";
import { StreamPlayer, VideoPlayer } from "./players.js";
import { colours } from "./theme.js";

const TOLERANCES = [500, 1000, 2000];
const ON_STAGE = 3; // predictions listed over the video
const RETRY_MS = 2000; // after a failed request
const KEPT_MS = 2 * 3600 * 1000; // history of a stream

class Watch {
  constructor(about, player) {
    this.about = about;
    this.player = player;
    this.index = new Map(about.actions.map((label, i) => [label, i]));
    this.timeline = new Timeline();
    this.events = null;
    this.tolerance = 1000;
    this.known = Infinity; // processed up to this time, in ms
    this.judged = new Judged([], null, this.tolerance);
    this.stopping = [];
    this.filter = new Filter(about);
    this.score = new Score();
    this.third = h("ol", { class: "third", "aria-label": "Next actions" });
    this.note = h("p", { class: "note", hidden: true });
    this.badge = h("span", { class: "badge", "data-testid": "badge" });
    this.play = h("button", { class: "play", "aria-label": "Play or pause", onclick: () => player.toggle() }, "▶");
    this.time = h("span", { class: "time" }, "0:00");
    this.bar = h("input", {
      type: "range",
      min: "0",
      max: "1000",
      value: "0",
      step: "1",
      "aria-label": "Position in the video",
      oninput: () => player.seek((Number(this.bar.value) / 1000) * player.duration),
    });
    this.canvas = h("canvas", { class: "axis", role: "img", "aria-label": "Anticipated actions on a time axis" });
    this.tools = h("div", { class: "tools" });
    const tolerance = h(
      "select",
      { "aria-label": "Tolerance", onchange: (event) => this.judge(Number(event.target.value)) },
      TOLERANCES.map((ms) => h("option", { value: String(ms), selected: ms === this.tolerance }, `± ${ms / 1000} s`)),
    );
    this.element = h(
      "div",
      { class: "watch" },
      h(
        "section",
        { class: "left" },
        h("div", { class: "stage" }, player.element, this.note, this.badge, this.third),
        h("div", { class: "controls" }, this.play, this.time, player.live ? h("span", { class: "grow" }) : this.bar),
        h("div", { class: "panel axis-panel" }, this.canvas),
      ),
      h(
        "aside",
        {},
        h("section", { class: "card" }, h("h2", {}, "So far", tolerance), this.score.element),
        h("section", { class: "card" }, h("h2", {}, "Actions"), this.filter.element),
        h("section", { class: "card" }, this.tools),
      ),
    );
  }

  start() {
    this.axis = new Axis(this.canvas, this.about.names, this.about.horizon_ms);
    const palette = colours((found) => (this.colours = found));
    this.colours = palette.now;
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
    this.player.stop();
  }

  judge(tolerance = this.tolerance) {
    this.tolerance = tolerance;
    this.judged = new Judged(this.timeline.anticipations, this.events, tolerance);
    this.changes = this.timeline.changes;
  }

  draw() {
    if (this.changes !== this.timeline.changes) this.judge();
    const { now } = this.player;
    this.axis.draw({
      now,
      timeline: this.timeline,
      judged: this.judged,
      shown: this.filter.shown,
      index: this.index,
      colours: this.colours,
    });
  }

  // Update what need not follow every frame.
  figures() {
    const { player } = this;
    const { now } = player;
    this.play.textContent = player.paused ? "▶" : "❚❚";
    this.time.textContent = player.duration ? `${clock(now)} / ${clock(player.duration)}` : clock(now);
    if (player.duration && document.activeElement !== this.bar) this.bar.value = String((1000 * now) / player.duration);
    if (player.failed && !player.live) this.showNote("This browser cannot play the video; the axis works without it.");
    this.computing(now);
    this.expect(now);
    this.score.show(this.judged.score(now, this.filter.shown), this.tolerance, this.events !== null);
    this.filter.count(this.judged, now);
  }

  computing(now) {
    if (this.player.live) return;
    const early = this.timeline.anticipations[0]?.at_ms ?? 5000;
    if (this.known === Infinity) this.badge.textContent = now < early ? "predictions start after 5 s" : "";
    else this.badge.textContent = `computed up to ${clock(this.known)}`;
    this.badge.hidden = !this.badge.textContent;
  }

  // The lower third: the most confident predictions, in order of time.
  expect(now) {
    const latest = this.timeline.anticipations[this.timeline.index(now)];
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
          h("span", { class: "name" }, this.about.names[i]),
          h("span", { class: "when" }, `in ${((p.position_ms - now) / 1000).toFixed(1)} s`),
          h("span", { class: "sure" }, percent(p.confidence)),
        );
      }),
    );
  }

  showNote(text) {
    this.note.textContent = text;
    this.note.hidden = !text;
  }

  key(event) {
    const step = event.shiftKey ? 1000 : 5000;
    if (event.key === " ") this.player.toggle();
    else if (event.key === "ArrowLeft") this.player.seek(this.player.now - step);
    else if (event.key === "ArrowRight") this.player.seek(this.player.now + step);
    else if (/^[0-9]$/.test(event.key)) this.filter.toggle((Number(event.key) + 9) % 10);
    else if (event.key === "a") this.filter.all();
    else return false;
    return true;
  }
}

// Load the actual events; labels that cannot be read are reported, and the view works without them.
async function readActual(watch, address) {
  try {
    const { known, events } = await api.get(`${address}/actual`);
    watch.events = known ? events : null;
  } catch (error) {
    toast(error.message);
  }
}

// Watch a video: forecasts as they are computed, then the stored timeline.
export async function watchJob(about, id) {
  const job = await api.get(`/api/jobs/${id}`);
  const watch = new Watch(about, new VideoPlayer(`/api/jobs/${id}/video`, job.duration_ms));
  const actual = async () => {
    await readActual(watch, `/api/jobs/${id}`);
    watch.judge();
  };
  const done = async () => {
    const { anticipations } = await api.get(`/api/jobs/${id}/timeline`);
    watch.timeline.replace(anticipations);
    watch.known = Infinity;
    watch.tools.replaceChildren(
      h("a", { href: `/api/jobs/${id}/timeline`, download: "" }, "Timeline (JSON)"),
      h("a", { href: `/api/jobs/${id}/timeline.csv`, download: "" }, "Table (CSV)"),
      labels,
    );
  };
  const file = h("input", {
    type: "file",
    accept: ".json,application/json",
    class: "hidden-file",
    id: "labels",
    onchange: async () => {
      try {
        await api.put(`/api/jobs/${id}/labels`, file.files[0]);
        await actual();
      } catch (error) {
        toast(error.message);
      }
      file.value = "";
    },
  });
  const labels = h("label", { class: "button", for: "labels", title: "Labels-ball.json, matches.json or OSL JSON" });
  labels.append("Add labels …", file);
  watch.tools.append(labels);
  await actual();
  if (job.state === "done") await done();
  else if (job.state === "queued" || job.state === "running") {
    watch.known = 0;
    let retry = null;
    const results = async () => {
      try {
        await done();
      } catch (error) {
        if (error instanceof TypeError) retry = setTimeout(results, RETRY_MS); // the server may be restarting
        else toast(error.message);
      }
    };
    const source = follow(`/api/jobs/${id}/events`, {
      anticipation: (forecast) => watch.timeline.add(forecast),
      progress: ({ done_ms }) => (watch.known = done_ms),
      state: ({ state, message }) => {
        if (state === "done") results();
        else if (state !== "running") watch.showNote(message || `The job is ${state}.`);
        if (state !== "running") source.close();
      },
    });
    watch.stopping.push(() => {
      source.close();
      clearTimeout(retry);
    });
  } else watch.showNote(job.message || `The job is ${job.state}.`);
  watch.title = job.name;
  return watch;
}

// Watch a stream, on the clock of the stream.
export async function watchStream(about, name) {
  const player = new StreamPlayer();
  const watch = new Watch(about, player);
  const address = `/api/streams/${encodeURIComponent(name)}`;
  await readActual(watch, address);
  const rate = h("p", { class: "quiet small", "data-testid": "rate" });
  rate.textContent = "no forecast yet";
  watch.tools.append(rate);
  const badge = (text, live = false) => {
    watch.badge.textContent = text;
    watch.badge.className = live ? "badge live" : "badge";
  };
  badge("connecting");
  let session = null;
  const handlers = {
    session: ({ id }) => {
      if (session !== null && session !== id) watch.timeline.replace([]); // a new session has a new clock
      session = id;
    },
    preview: (preview) => player.show(preview),
    anticipation: (forecast) => {
      player.sync(forecast.at_ms);
      watch.timeline.add(forecast);
      const old = watch.timeline.anticipations;
      if (old[0].at_ms < forecast.at_ms - KEPT_MS) watch.timeline.replace(old.slice(-1800));
      rate.textContent = `every ${forecast.every_ms / 1000} s, ${Math.round(forecast.latency_ms)} ms after a frame`;
    },
    status: ({ state, message }) => {
      const fine = state === "running";
      player.running = ["running", "slow", "filling"].includes(state);
      badge(fine ? "live" : state, fine);
      watch.showNote(fine ? "" : message);
      if (!["ended", "stopped", "error"].includes(state)) return;
      source.close(); // else the browser would reconnect and restart the stream
      player.end();
      watch.play.disabled = true;
      watch.figures(); // at once, not with the next quarter of a second
    },
  };
  const source = follow(`${address}/events`, handlers, () => {
    player.running = false;
    badge("not connected");
  });
  watch.stopping.push(() => source.close());
  watch.title = name;
  return watch;
}
