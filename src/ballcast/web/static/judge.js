// After the fact: which predictions came true, and the running score. Pure functions, times in ms.
//
// A prediction is right when an action of its class really came within `tolerance` of the time it gave, after it was
// made. Among the predictions of one moment an action counts for one only, the surest first.

// The index of the first of a list, in order of `key`, that is after `time`.
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
  // events: [{label, position_ms}] in order of time, or null where nobody knows what happened.
  constructor(anticipations, events, tolerance) {
    this.anticipations = anticipations;
    this.events = events;
    this.tolerance = tolerance;
    this.match = new Map(); // prediction → the event it foresaw
    this.seen = new Map(); // event → when it was first foreseen
    if (events) for (const made of anticipations) this._moment(made);
  }

  _moment(made) {
    const latest = Math.max(...made.predictions.map((p) => p.position_ms)) + this.tolerance;
    const free = [];
    for (let i = after(this.events, "position_ms", made.at_ms - 1); i < this.events.length; i += 1) {
      if (this.events[i].position_ms > latest) break;
      free.push(this.events[i]);
    }
    for (const prediction of [...made.predictions].sort((a, b) => b.confidence - a.confidence)) {
      const away = (event) => Math.abs(event.position_ms - prediction.position_ms);
      const near = free.filter((event) => event.label === prediction.label && away(event) <= this.tolerance);
      if (!near.length) continue;
      const event = near.reduce((best, other) => (away(other) < away(best) ? other : best));
      free.splice(free.indexOf(event), 1);
      this.match.set(prediction, event);
      if (!this.seen.has(event)) this.seen.set(event, made.at_ms);
    }
  }

  // "hit", "miss", or "open" while it may still come true or nobody knows.
  verdict(prediction, now) {
    if (!this.events) return "open";
    const event = this.match.get(prediction);
    if (event) return now >= event.position_ms ? "hit" : "open";
    return now > prediction.position_ms + this.tolerance ? "miss" : "open";
  }

  // Up to `now`, of the actions `shown` (a set of labels).
  score(now, shown) {
    const total = { hits: 0, misses: 0, said: 0, events: 0, seen: 0, lead: 0 };
    if (!this.events) return total;
    for (const made of this.anticipations) {
      if (made.at_ms > now) break;
      for (const prediction of made.predictions) {
        if (!shown.has(prediction.label)) continue;
        const verdict = this.verdict(prediction, now);
        if (verdict === "open") continue;
        total[verdict === "hit" ? "hits" : "misses"] += 1;
        total.said += prediction.confidence;
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

// What was anticipated along a video or stream, in order of time; the same moment told twice counts once.
export class Timeline {
  constructor() {
    this.anticipations = [];
    this.changes = 0;
  }

  add(made) {
    const list = this.anticipations;
    let at = list.length;
    while (at > 0 && list[at - 1].at_ms >= made.at_ms) at -= 1;
    const same = list[at]?.at_ms === made.at_ms ? 1 : 0;
    list.splice(at, same, { at_ms: made.at_ms, predictions: made.predictions });
    this.changes += 1;
  }

  replace(all) {
    this.anticipations = all;
    this.changes += 1;
  }

  // The index of the latest moment at or before `now`; −1: there is none.
  index(now) {
    return after(this.anticipations, "at_ms", now) - 1;
  }
}
