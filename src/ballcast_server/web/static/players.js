// Players with the same interface: a video file and a live stream.

import { h } from "./dom.js";
import { t } from "./text.js";

// A video file. If the browser cannot play it, the clock still runs, without frames.
export class VideoPlayer {
  constructor(address, duration_ms) {
    this.live = false;
    this.duration = duration_ms ?? 0;
    this.element = h("video", { src: address, preload: "auto", playsinline: "", "aria-label": t("watch.video") });
    this.element.muted = true; // until the user asks for sound: a room of people is surprised otherwise
    this.failed = false;
    this.rate = 1;
    this.began = null; // start of the clock without frames
    this.passed = 0;
    this.element.addEventListener("error", () => (this.failed = true));
    this.element.addEventListener("click", () => this.toggle());
    this.element.addEventListener("loadedmetadata", () => {
      if (Number.isFinite(this.element.duration)) this.duration = 1000 * this.element.duration;
      if (!this.element.videoWidth) this.failed = true; // only the sound can be played, as of HEVC in many browsers
    });
  }

  get now() {
    if (!this.failed) return 1000 * this.element.currentTime;
    const running = this.began === null ? 0 : this.rate * (performance.now() - this.began);
    return Math.min(this.duration, this.passed + running);
  }

  get paused() {
    return this.failed ? this.began === null : this.element.paused;
  }

  toggle() {
    if (!this.failed) {
      if (this.element.paused) this.element.play().catch(() => {}); // the "error" event handles it
      else this.element.pause();
    } else if (this.began === null) this.began = performance.now();
    else {
      this.passed = this.now;
      this.began = null;
    }
  }

  // Playing speed, 1: as recorded.
  get speed() {
    return this.rate;
  }

  set speed(rate) {
    this.passed = this.failed ? this.now : this.passed;
    if (this.began !== null) this.began = performance.now();
    this.rate = rate;
    this.element.playbackRate = rate;
  }

  seek(ms) {
    const to = Math.max(0, Math.min(this.duration || Infinity, ms));
    if (!this.failed) this.element.currentTime = to / 1000;
    else {
      this.passed = to;
      if (this.began !== null) this.began = performance.now();
    }
  }

  stop() {
    this.element.pause();
    this.element.removeAttribute("src");
    this.element.load();
  }
}

// A stream: previews as they arrive, and a clock that follows their times smoothly.
export class StreamPlayer {
  constructor() {
    this.live = true;
    this.duration = 0;
    this.failed = false;
    this.element = h("img", { alt: t("watch.stream"), class: "preview" });
    this.element.hidden = true;
    this.offset = null; // stream time minus performance.now()
    this.latest = 0;
    this.running = false;
    this.held = null; // stream time of the pause; null: not paused
    this.ended = false;
  }

  get now() {
    if (this.held !== null) return this.held;
    if (this.offset === null) return 0;
    return this.running ? Math.min(performance.now() + this.offset, this.latest + 1500) : this.latest;
  }

  get paused() {
    return this.held !== null;
  }

  toggle() {
    if (!this.ended) this.held = this.held === null ? this.now : null;
  }

  // The stream has ended; seeking back still works.
  end() {
    this.held ??= this.now;
    this.ended = true;
  }

  seek(ms) {
    if (this.held !== null) this.held = Math.max(0, Math.min(this.latest, ms));
  }

  // Adjust the clock: stream time `at_ms` has just arrived.
  sync(at_ms) {
    const offset = at_ms - performance.now();
    if (this.offset === null || Math.abs(offset - this.offset) > 1500) this.offset = offset;
    else this.offset += 0.1 * (offset - this.offset);
    this.latest = Math.max(at_ms, this.offset + performance.now() - 1500);
    this.running = true;
  }

  show(preview) {
    this.sync(preview.at_ms);
    if (this.held !== null) return;
    this.element.src = `data:image/jpeg;base64,${preview.jpeg}`;
    this.element.hidden = false;
  }

  stop() {
    this.running = false;
  }
}
