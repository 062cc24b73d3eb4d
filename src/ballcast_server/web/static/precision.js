// Expected precision: how often predictions of an action at some confidence come true, as measured on validation.

export class Precision {
  // record: {tolerance_ms, default, actions: label → [[confidence, precision], …]}, both rising; null: not measured.
  constructor(record) {
    this.measured = Boolean(record?.actions);
    this.tolerance = record?.tolerance_ms ?? 1000;
    this.default = this.measured ? record.default : 0;
    this.actions = record?.actions ?? {};
  }

  // The expected precision of a prediction; its confidence, if it was not measured.
  of(label, confidence) {
    if (!this.measured) return confidence;
    const curve = this.actions[label] ?? [];
    let [x, y] = [0, 0];
    for (const [nextX, nextY] of curve) {
      if (confidence <= nextX) return y + ((nextY - y) * (confidence - x)) / Math.max(nextX - x, 1e-9);
      [x, y] = [nextX, nextY];
    }
    return y;
  }
}
