// Routing between views, keys, help.

import * as api from "./api.js";
import { h } from "./dom.js";
import { Home } from "./home.js";
import { t } from "./text.js";
import { switchTheme } from "./theme.js";
import { watchJob } from "./watch_job.js";
import { watchStream } from "./watch_stream.js";

const view = document.getElementById("view");
const keys = document.getElementById("keys");
const KEYS = [
  [["keys.space"], "keys.play"],
  [["←", "→"], "keys.step"],
  [["PgUp", "PgDn"], "keys.minute"],
  [["p", "n"], "keys.moments"],
  [["[", "]"], "keys.precision"],
  [["1", "…", "9", "0"], "keys.actions"],
  [["a"], "keys.all"],
  [["f"], "keys.screen"],
  [["m"], "keys.sound"],
  [["<", ">"], "keys.speed"],
  [["t"], "keys.theme"],
  [["?"], "keys.help"],
  [["keys.esc"], "keys.back"],
];
const MOVES = /^(Arrow|Page|Home|End)/;
let shown = null;
let navigation = 0; // counts route changes

async function route(about) {
  const current = (navigation += 1);
  const [, kind, name] = location.hash.split("/");
  shown?.stop();
  shown = null;
  try {
    let next;
    if (kind === "job") next = await watchJob(about, encodeURIComponent(name));
    else if (kind === "stream") next = await watchStream(about, decodeURIComponent(name));
    else next = new Home(about);
    if (current !== navigation) {
      next.stop(); // the user has navigated on
      return;
    }
    shown = next;
    document.getElementById("here").textContent = next.title ?? "";
    document.title = next.title ? `${next.title} · ballcast` : "ballcast";
    view.replaceChildren(next.element);
    await next.start();
  } catch (error) {
    if (current !== navigation) return;
    view.replaceChildren(
      h(
        "section",
        { class: "card lost" },
        h("h1", {}, t("lost.title")),
        h("p", { class: "quiet" }, t("lost.text", { message: error.message })),
        h("a", { class: "button first", href: "#/" }, t("lost.back")),
      ),
    );
  }
}

const key = (name) => (name === "…" ? " … " : h("kbd", {}, name.startsWith("keys.") ? t(name) : name));
keys
  .querySelector("dl")
  .append(...KEYS.map(([names, what]) => h("div", {}, h("dt", {}, names.flatMap((n) => [key(n), " "])), h("dd", {}, t(what)))));

function help() {
  if (keys.open) keys.close();
  else keys.showModal();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  if (event.target.matches("input:not([type=range]), select, textarea")) return;
  if (event.key === " " && event.target.matches("button, a, label, summary")) return; // it presses the button
  if (event.target.matches("input[type=range]:not(.seek)") && MOVES.test(event.key)) return; // it moves the slider
  if (event.key === "?") help();
  else if (event.key === "t") switchTheme();
  else if (event.key === "Escape" && !document.fullscreenElement && location.hash.length > 2) location.hash = "#/";
  else if (!shown?.key(event)) return;
  event.preventDefault();
});

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the route
  view.focus();
});
document.getElementById("help").addEventListener("click", help);
const logout = document.getElementById("logout");
logout.addEventListener("click", async () => {
  await api.post("/api/logout");
  location.assign("/login");
});

const about = await api.get("/api/about");
logout.hidden = !about.login;
addEventListener("hashchange", () => route(about));
await route(about);
