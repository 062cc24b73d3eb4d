// Downloads of the video with its forecasts drawn below it: the whole, or a clip around the current time.

import * as api from "./api.js";
import { clock, h, percent, toast } from "./dom.js";
import { t } from "./text.js";

const POLL_MS = 1000;
const [BEFORE_MS, AFTER_MS] = [8000, 7000];

export class Renders {
  // address: of the job. player: whose time is the clip's middle.
  constructor(address, player) {
    this.address = `${address}/renders`;
    this.list = h("ul", { class: "renders", "aria-live": "polite" });
    const clip = () => {
      const now = Math.round(player.now);
      return this.ask({ begin_ms: Math.max(0, now - BEFORE_MS), end_ms: now + AFTER_MS });
    };
    this.element = h(
      "div",
      { class: "tools" },
      h("button", { id: "overlay", onclick: () => this.ask({}) }, t("render.overlay")),
      h("button", { id: "clip", onclick: clip }, t("render.clip")),
      this.list,
    );
    this.stopped = false;
  }

  async start() {
    try {
      await this.refresh();
    } catch {
      // the server may be restarting; the buttons ask again
    }
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  async ask(part) {
    try {
      await api.post(this.address, part);
      await this.refresh();
    } catch (error) {
      toast(error.message);
    }
  }

  async refresh() {
    const found = await api.get(this.address);
    if (this.stopped) return;
    this.list.replaceChildren(...found.map((record) => h("li", {}, this._row(record))));
    clearTimeout(this.timer);
    if (found.some(({ state }) => state === "waiting" || state === "running"))
      this.timer = setTimeout(() => this.start(), POLL_MS);
  }

  _row({ name: file, state, done, message }) {
    const [, from, to] = file.match(/^clip-(\d+)-(\d+)/) ?? [];
    const name = from ? t("render.clip.name", { from: clock(from), to: clock(to) }) : t("render.overlay.name");
    if (state === "done") return h("a", { href: `${this.address}/${file}`, download: "" }, name);
    return t(`render.${state}`, { name, percent: percent(done), message });
  }
}
