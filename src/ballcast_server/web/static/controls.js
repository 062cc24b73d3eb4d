// The controls under the video: play, position, sound, speed, full screen.

import { clock, h, icon } from "./dom.js";
import { t } from "./text.js";

const SPEEDS = [0.25, 0.5, 1, 1.5, 2, 4];

export class Controls {
  // player: of players.js. screen: the element that fills the screen.
  constructor(player, screen) {
    this.player = player;
    this.screen = screen;
    this.play = h("button", { class: "play", "aria-label": t("watch.play"), onclick: () => player.toggle() }, "▶");
    this.time = h("span", { class: "time" }, "0:00");
    this.bar = h("input", {
      type: "range",
      class: "seek grow",
      min: "0",
      max: "1000",
      value: "0",
      step: "1",
      "aria-label": t("watch.position"),
      oninput: () => player.seek((Number(this.bar.value) / 1000) * player.duration),
    });
    this.sound = h("button", { class: "icon", "aria-label": t("watch.sound"), onclick: () => this.mute() }, icon("muted"));
    this.volume = h("input", {
      type: "range",
      class: "volume",
      min: "0",
      max: "1",
      step: "0.05",
      value: "1",
      "aria-label": t("watch.volume"),
      oninput: () => {
        player.element.volume = Number(this.volume.value);
        player.element.muted = player.element.volume === 0;
      },
    });
    this.speed = h(
      "select",
      { "aria-label": t("watch.speed"), onchange: () => (player.speed = Number(this.speed.value)) },
      SPEEDS.map((speed) =>
        h("option", { value: String(speed), selected: speed === 1 }, t("watch.speed.value", { speed })),
      ),
    );
    this.full = h("button", { class: "icon", "aria-label": t("watch.screen"), onclick: () => this.fill() }, icon("screen"));
    this.full.hidden = !document.fullscreenEnabled;
    const file = [this.bar, this.sound, this.volume, this.speed];
    const stream = [h("span", { class: "grow" })];
    this.element = h("div", { class: "controls" }, this.play, this.time, player.live ? stream : file, this.full);
  }

  show() {
    const { player } = this;
    const { now } = player;
    this.play.textContent = player.paused ? "▶" : "❚❚";
    this.time.textContent = player.duration
      ? t("watch.time", { now: clock(now), duration: clock(player.duration) })
      : clock(now);
    if (player.duration && document.activeElement !== this.bar) this.bar.value = String((1000 * now) / player.duration);
    if (player.live) return;
    this.bar.setAttribute("aria-valuetext", clock(now));
    const { muted, volume } = player.element;
    if (this.sound.getAttribute("aria-pressed") !== String(!muted)) {
      this.sound.setAttribute("aria-pressed", String(!muted));
      this.sound.replaceChildren(icon(muted ? "muted" : "loud"));
    }
    if (document.activeElement !== this.volume) this.volume.value = String(volume);
  }

  mute() {
    if (!this.player.live) this.player.element.muted = !this.player.element.muted;
  }

  faster(way) {
    if (this.player.live) return;
    const next = SPEEDS[SPEEDS.indexOf(this.player.speed) + way];
    if (!next) return;
    this.player.speed = next;
    this.speed.value = String(next);
  }

  fill() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.screen.requestFullscreen?.().catch(() => {}); // refused by the browser: nothing changes
  }
}
