// The moving time axis: one lane per action; predictions right of the current time, their outcomes left of it.

import { t } from "./text.js";

const FADE_MS = 700; // how long the predictions of the previous forecast take to fade

export class Axis {
  // names: of the lanes, in order. ahead_ms: the horizon.
  constructor(canvas, names, ahead_ms) {
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches; // nothing grows or fades
    this.canvas = canvas;
    this.names = names;
    this.ahead = ahead_ms;
    this.pen = canvas.getContext("2d");
    new ResizeObserver(() => this._resize()).observe(canvas);
    this._resize();
  }

  _resize() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.ratio = ratio;
    this.narrow = width < 560;
    this.gutter = this.narrow ? 74 : 90;
    this.top = 22;
    this.lane = (height - this.top - 4) / this.names.length;
    this.behind = this.narrow ? 2600 : 6000;
    this.perMs = (width - this.gutter - 8) / (this.behind + this.ahead + 300);
    this.width = width;
    this.height = height;
  }

  x(ms, now) {
    return this.gutter + (ms - now + this.behind) * this.perMs;
  }

  y(lane) {
    return this.top + (lane + 0.5) * this.lane;
  }

  // now: current time in ms. timeline: a Timeline. judged: a Judged. shown: set of labels. index: label → lane.
  // gaps: [{from, to}] in ms, where nothing was forecast.
  draw({ now, timeline, judged, shown, index, colours, gaps = [] }) {
    const pen = this.pen;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.textBaseline = "middle";
    this._ground(now, shown, index, colours);
    const latest = timeline.index(now);
    const from = now - this.behind - 1000;
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, 0, this.width - this.gutter, this.height);
    pen.clip();
    for (const gap of gaps) if (gap.to >= from && gap.from <= now + this.ahead) this._gap(gap, now, colours);
    if (judged.events) {
      for (const event of judged.events) {
        if (event.position_ms < from) continue;
        if (event.position_ms > now) break;
        if (shown.has(event.label)) this._actual(event, now, index, colours, judged.seen.has(event));
      }
    }
    const expected = [];
    for (let i = latest; i >= 0; i -= 1) {
      const forecast = timeline.anticipations[i];
      if (forecast.at_ms < from - this.ahead) break;
      const age = now - timeline.anticipations[Math.min(i + 1, latest)].at_ms; // since the next forecast
      for (const prediction of forecast.predictions) {
        if (!shown.has(prediction.label)) continue;
        const lane = index.get(prediction.label);
        const verdict = judged.verdict(prediction, now);
        if (prediction.position_ms > now && verdict === "open") {
          if (i === latest) expected.push(this._expected(prediction, forecast, now, lane, colours));
          else if (!this.still && age < FADE_MS && i === latest - 1) this._ghost(prediction, now, lane, colours, 1 - age / FADE_MS);
        } else if (prediction.position_ms >= from) {
          this._past(prediction, now, lane, verdict, colours);
        }
      }
    }
    this._figures(expected, now, colours);
    pen.restore();
    this._now(now, colours);
  }

  _ground(now, shown, index, colours) {
    const pen = this.pen;
    const line = this.x(now, now);
    pen.fillStyle = colours.ground;
    pen.fillRect(this.gutter, this.top, line - this.gutter, this.height - this.top);
    for (const [label, lane] of index) {
      const on = shown.has(label);
      pen.globalAlpha = on ? 1 : 0.35;
      pen.fillStyle = colours.actions[lane];
      pen.fillRect(0, this.y(lane) - this.lane * 0.3, 4, this.lane * 0.6);
      pen.fillStyle = on ? colours.ink : colours.quiet;
      pen.font = `${this.narrow ? 12 : 13}px system-ui, sans-serif`;
      pen.textAlign = "left";
      pen.fillText(this.names[lane], 10, this.y(lane));
      pen.globalAlpha = 0.5;
      pen.strokeStyle = colours.line;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(this.gutter, Math.round(this.y(lane) + this.lane / 2) + 0.5);
      pen.lineTo(this.width, Math.round(this.y(lane) + this.lane / 2) + 0.5);
      pen.stroke();
    }
    pen.globalAlpha = 1;
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    for (let s = -Math.floor(this.behind / 1000); s <= this.ahead / 1000; s += 1) {
      if (!s) continue;
      const x = Math.round(this.x(now + 1000 * s, now)) + 0.5;
      pen.strokeStyle = colours.line;
      pen.globalAlpha = s > 0 ? 0.9 : 0.5;
      pen.beginPath();
      pen.moveTo(x, this.top);
      pen.lineTo(x, this.height);
      pen.stroke();
      pen.globalAlpha = 1;
      pen.fillStyle = colours.quiet;
      if (s > 0 || !this.narrow) pen.fillText(s > 0 ? t("axis.ahead", { seconds: s }) : t("axis.behind", { seconds: -s }), x, 11);
    }
  }

  // A time without a usable picture, hatched.
  _gap({ from, to }, now, colours) {
    const pen = this.pen;
    const [left, right] = [this.x(from, now), this.x(to, now)];
    pen.save();
    pen.beginPath();
    pen.rect(left, this.top, Math.max(3, right - left), this.height - this.top);
    pen.clip();
    pen.strokeStyle = colours.bad;
    pen.globalAlpha = 0.6;
    pen.lineWidth = 1;
    pen.beginPath();
    const [first, last] = [Math.max(left, 0) - this.height, Math.min(right, this.width) + 3];
    for (let x = first - (first % 8); x < last; x += 8) {
      pen.moveTo(x, this.height);
      pen.lineTo(x + this.height, 0);
    }
    pen.stroke();
    pen.restore();
  }

  _now(now, colours) {
    const pen = this.pen;
    const x = Math.round(this.x(now, now)) + 0.5;
    pen.strokeStyle = pen.fillStyle = colours.accent;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(x, this.top - 2);
    pen.lineTo(x, this.height);
    pen.stroke();
    pen.font = "600 12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.fillText(t("axis.now"), x, 11);
  }

  // A prediction: a disc whose size shows its confidence; it grows at first. Returns the place for its figure.
  _expected(prediction, forecast, now, lane, colours) {
    const pen = this.pen;
    const [x, y] = [this.x(prediction.position_ms, now), this.y(lane)];
    const confidence = Math.min(1, prediction.confidence);
    const grown = this.still ? 1 : Math.min(1, 0.4 + (now - forecast.at_ms) / 250);
    const radius = (3 + (this.lane / 2 - 4) * Math.sqrt(confidence)) * grown;
    pen.globalAlpha = 0.55 + 0.45 * confidence;
    pen.fillStyle = colours.actions[lane];
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fill();
    pen.globalAlpha = 1;
    return { lane, confidence, y, from: x - radius, to: x + radius };
  }

  // The confidence beside each disc, highest first: right or left of it, or nowhere if both places are taken.
  _figures(expected, now, colours) {
    const pen = this.pen;
    const taken = expected.map(({ lane, from, to }) => ({ lane, from, to }));
    pen.fillStyle = colours.ink;
    pen.textAlign = "left";
    for (const { lane, confidence, y, from, to } of [...expected].sort((a, b) => b.confidence - a.confidence)) {
      pen.font = `${confidence >= 0.3 ? "600 " : ""}12px system-ui, sans-serif`;
      const text = `${Math.round(100 * confidence)} %`;
      const wide = pen.measureText(text).width;
      const left = [to + 4, from - 4 - wide].find(
        (x) =>
          x > this.x(now, now) &&
          x + wide < this.width &&
          !taken.some((other) => other.lane === lane && other.from < x + wide + 1 && other.to > x - 1),
      );
      if (left === undefined) continue;
      pen.fillText(text, left, y);
      taken.push({ lane, from: left, to: left + wide });
    }
  }

  // A prediction of the previous forecast, fading.
  _ghost(prediction, now, lane, colours, strength) {
    const pen = this.pen;
    pen.globalAlpha = 0.5 * strength;
    pen.strokeStyle = colours.actions[lane];
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(this.x(prediction.position_ms, now), this.y(lane), 3.5, 0, 2 * Math.PI);
    pen.stroke();
    pen.globalAlpha = 1;
  }

  // The outcome of a prediction: a dot for a hit, a cross for a miss, a ring if unknown; shape and colour agree.
  _past(prediction, now, lane, verdict, colours) {
    const pen = this.pen;
    const [x, y] = [this.x(prediction.position_ms, now), this.y(lane)];
    pen.globalAlpha = 0.35 + 0.65 * Math.min(1, 2 * prediction.confidence);
    pen.lineWidth = 2;
    pen.beginPath();
    if (verdict === "hit") {
      pen.fillStyle = colours.good;
      pen.arc(x, y, 4.5, 0, 2 * Math.PI);
      pen.fill();
    } else if (verdict === "miss") {
      pen.strokeStyle = colours.bad;
      for (const slope of [-1, 1]) {
        pen.moveTo(x - 3.5, y - 3.5 * slope);
        pen.lineTo(x + 3.5, y + 3.5 * slope);
      }
      pen.stroke();
    } else {
      pen.strokeStyle = colours.actions[lane];
      pen.arc(x, y, 3.5, 0, 2 * Math.PI);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  // An actual event: a vertical bar in its lane; `seen`: it was predicted.
  _actual(event, now, index, colours, seen) {
    const pen = this.pen;
    const lane = index.get(event.label);
    const x = this.x(event.position_ms, now);
    const tall = this.lane * 0.8;
    pen.fillStyle = colours.actions[lane];
    pen.fillRect(x - 2, this.y(lane) - tall / 2, 4, tall);
    pen.strokeStyle = seen ? colours.good : colours.quiet;
    pen.lineWidth = 1.5;
    pen.strokeRect(x - 4, this.y(lane) - tall / 2 - 1.5, 8, tall + 3);
  }
}
