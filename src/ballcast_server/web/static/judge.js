// Compare predictions with the actual events, and keep the running score. Pure functions, times in ms.
//
// A prediction is a hit if an event of its class is within `tolerance` of its time and after its forecast was made.
// Within one forecast an event matches one prediction only, the most confident first.

// Index of the first item whose `key` is after `time`, in a list sorted by `key`.
function after(list, key, time) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle][key] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class Judged {
  // anticipations: [{at_ms, predictions: [{label, position_ms, confidence}]}] in order of time.
  // events: [{label, position_ms}] in order of time, or null without labels.
  constructor(anticipations, events, tolerance) {
    this.anticipations = anticipations;
    this.events = events;
    this.tolerance = tolerance;
    this.match = new Map(); // prediction → the event it matches
    this.seen = new Map(); // event → time of the first forecast that predicted it
    if (events) for (const forecast of anticipations) this._match(forecast);
  }

  _match(forecast) {
    const latest = Math.max(...forecast.predictions.map((p) => p.position_ms)) + this.tolerance;
    const free = [];
    for (let i = after(this.events, "position_ms", forecast.at_ms - 1); i < this.events.length; i += 1) {
      if (this.events[i].position_ms > latest) break;
      free.push(this.events[i]);
    }
    for (const prediction of [...forecast.predictions].sort((a, b) => b.confidence - a.confidence)) {
      const away = (event) => Math.abs(event.position_ms - prediction.position_ms);
      const near = free.filter((event) => event.label === prediction.label && away(event) <= this.tolerance);
      if (!near.length) continue;
      const event = near.reduce((best, other) => (away(other) < away(best) ? other : best));
      free.splice(free.indexOf(event), 1);
      this.match.set(prediction, event);
      if (!this.seen.has(event)) this.seen.set(event, forecast.at_ms);
    }
  }

  // "hit", "miss", or "open" while it may still become a hit or without labels.
  verdict(prediction, now) {
    if (!this.events) return "open";
    const event = this.match.get(prediction);
    if (event) return now >= event.position_ms ? "hit" : "open";
    return now > prediction.position_ms + this.tolerance ? "miss" : "open";
  }

  // Hits and judged predictions up to `now`: label → [hits, all].
  counts(now) {
    const found = new Map();
    if (!this.events) return found;
    for (const forecast of this.anticipations) {
      if (forecast.at_ms > now) break;
      for (const prediction of forecast.predictions) {
        const verdict = this.verdict(prediction, now);
        if (verdict === "open") continue;
        const [hits, all] = found.get(prediction.label) ?? [0, 0];
        found.set(prediction.label, [hits + (verdict === "hit" ? 1 : 0), all + 1]);
      }
    }
    return found;
  }

  // Totals up to `now` over the actions `shown` (a set of labels).
  score(now, shown) {
    const total = { hits: 0, misses: 0, confidence: 0, events: 0, seen: 0, lead: 0 };
    if (!this.events) return total;
    for (const forecast of this.anticipations) {
      if (forecast.at_ms > now) break;
      for (const prediction of forecast.predictions) {
        if (!shown.has(prediction.label)) continue;
        const verdict = this.verdict(prediction, now);
        if (verdict === "open") continue;
        total[verdict === "hit" ? "hits" : "misses"] += 1;
        total.confidence += prediction.confidence;
      }
    }
    const first = this.anticipations[0]?.at_ms ?? Infinity;
    for (const event of this.events) {
      if (event.position_ms > now) break;
      if (event.position_ms < first || !shown.has(event.label)) continue;
      total.events += 1;
      if (!this.seen.has(event)) continue;
      total.seen += 1;
      total.lead += event.position_ms - this.seen.get(event);
    }
    return total;
  }
}

// The forecasts of a video or stream in order of time; a repeated one replaces the first.
export class Timeline {
  constructor() {
    this.anticipations = [];
    this.changes = 0;
  }

  add(forecast) {
    const list = this.anticipations;
    let at = list.length;
    while (at > 0 && list[at - 1].at_ms >= forecast.at_ms) at -= 1;
    const same = list[at]?.at_ms === forecast.at_ms ? 1 : 0;
    list.splice(at, same, { at_ms: forecast.at_ms, predictions: forecast.predictions });
    this.changes += 1;
  }

  replace(all) {
    this.anticipations = all;
    this.changes += 1;
  }

  // Index of the latest forecast at or before `now`; −1: there is none.
  index(now) {
    return after(this.anticipations, "at_ms", now) - 1;
  }
}
