// What one model made of a video or stream: its forecasts, those that are sure enough, and how they fared.

import { Judged, Timeline } from "./judge.js";
import { Precision } from "./precision.js";

export class Track {
  // about: {model, origin, precision}, as in a result.
  constructor(about = {}) {
    this.all = new Timeline();
    this.visible = new Timeline(); // those at least as precise as `least`
    this.least = 0;
    this.describe(about);
    this.judge(null, 1000);
  }

  describe({ model, origin, precision, gaps }) {
    this.model = String(model ?? "").split(/[\\/]/).filter(Boolean).pop() ?? "";
    this.origin = origin ?? "";
    this.precision = new Precision(precision ?? null);
    this.gaps = [];
    for (const gap of gaps ?? []) this.addGap(gap);
  }

  // A forecast with the expected precision of its predictions in place of their confidence.
  _read({ at_ms, predictions }) {
    const read = ({ label, position_ms, confidence }) => ({
      label,
      position_ms,
      confidence: this.precision.of(label, confidence),
    });
    return { at_ms, predictions: predictions.map(read) };
  }

  // from, to: seconds of the video.
  addGap({ from, to, reason }) {
    this.gaps.push({ from: 1000 * from, to: 1000 * to, reason: reason ?? "" });
    this.all.changes += 1;
  }

  add(forecast) {
    this.all.add(this._read(forecast));
  }

  replace(anticipations) {
    this.all.replace(anticipations.map((forecast) => this._read(forecast)));
  }

  // Keep the latest of a long stream.
  keep(count) {
    this.all.replace(this.all.anticipations.slice(-count));
  }

  select(least) {
    this.least = least;
    this.changes = null;
  }

  judge(events, tolerance) {
    this.events = events;
    this.tolerance = tolerance;
    this.changes = null;
    this.update();
  }

  // Select and judge again if forecasts, precision, labels or tolerance have changed; returns whether they had.
  update() {
    if (this.changes === this.all.changes) return false;
    this.changes = this.all.changes;
    const sure = (p) => p.confidence >= this.least;
    const kept = this.all.anticipations.map(({ at_ms, predictions }) => ({ at_ms, predictions: predictions.filter(sure) }));
    this.visible.replace(kept);
    this.judged = new Judged(kept, this.events, this.tolerance);
    return true;
  }
}
