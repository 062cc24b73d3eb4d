// Expected precision: how often predictions of an action come true, as measured on validation. It is the confidence of
// predictions; results of earlier versions hold the network's own scores, and the curves to correct them.

export class Precision {
  // record: {tolerance_ms, default} and, of earlier versions, actions: label → [[score, precision], …], both rising;
  // null: not measured.
  constructor(record) {
    this.measured = Boolean(record);
    this.tolerance = record?.tolerance_ms ?? 1000;
    this.default = this.measured ? record.default : 0;
    this.actions = record?.actions ?? null;
  }

  // The expected precision of a prediction; its confidence, if it was not measured.
  of(label, confidence) {
    if (!this.actions) return confidence;
    const curve = this.actions[label] ?? [];
    let [x, y] = [0, 0];
    for (const [nextX, nextY] of curve) {
      if (confidence <= nextX) return y + ((nextY - y) * (confidence - x)) / Math.max(nextX - x, 1e-9);
      [x, y] = [nextX, nextY];
    }
    return y;
  }
}
