// Watch a stream, on the clock of the stream.

import { h } from "./dom.js";
import { FOLLOWED, follow } from "./events.js";
import { StreamPlayer } from "./players.js";
import { t } from "./text.js";
import { Watch } from "./watch.js";

const KEPT_MS = 2 * 3600 * 1000; // history of a stream
const KEPT = 1800; // forecasts that stay of a longer one

export async function watchStream(about, name) {
  const player = new StreamPlayer();
  const watch = new Watch(about, player);
  const address = `/api/streams/${encodeURIComponent(name)}`;
  await watch.readActual(address);
  const rate = h("p", { class: "quiet small", "data-testid": "rate" }, t("stream.none"));
  watch.tools.append(rate);
  const badge = (text, live = false) => {
    watch.badge.textContent = text;
    watch.badge.className = live ? "badge live" : "badge";
  };
  badge(t("stream.connecting"));
  let session = null;
  const handlers = {
    session: ({ id }) => {
      if (session !== null && session !== id) watch.track.replace([]); // a new session has a new clock
      session = id;
    },
    preview: (preview) => player.show(preview),
    anticipation: (forecast) => {
      player.sync(forecast.at_ms);
      watch.track.add(forecast);
      if (watch.track.all.anticipations[0].at_ms < forecast.at_ms - KEPT_MS) watch.track.keep(KEPT);
      const latency = Math.round(forecast.latency_ms);
      rate.textContent = t("stream.rate", { every: forecast.every_ms / 1000, latency });
    },
    status: ({ state, message }) => {
      const fine = state === "running";
      player.running = FOLLOWED.includes(state);
      badge(fine ? t("stream.live") : state, fine);
      watch.showNote(fine ? "" : message);
      if (!["ended", "stopped", "error"].includes(state)) return;
      source.close(); // else the browser would reconnect and restart the stream
      player.end();
      watch.controls.play.disabled = true;
      watch.figures(); // at once, not with the next quarter of a second
    },
  };
  const source = follow(`${address}/events`, handlers, () => {
    player.running = false;
    badge(t("stream.notConnected"));
  });
  watch.stopping.push(() => source.close());
  watch.title = name;
  return watch;
}
