// Watch a video: forecasts as they are computed, then the stored result; labels, downloads, a second model.

import * as api from "./api.js";
import { h, toast } from "./dom.js";
import { follow } from "./events.js";
import { VideoPlayer } from "./players.js";
import { Renders } from "./renders.js";
import { t } from "./text.js";
import { Watch } from "./watch.js";

const RETRY_MS = 2000; // after a failed request

// A button that asks for a file and hands it on; errors are shown.
function chooser(id, text, hint, take) {
  const file = h("input", {
    type: "file",
    accept: ".json,application/json",
    class: "hidden-file",
    id,
    onchange: async () => {
      try {
        await take(file.files[0]);
      } catch (error) {
        toast(error.message);
      }
      file.value = "";
    },
  });
  return h("label", { class: "button", for: id, title: hint }, text, file);
}

class JobView {
  constructor(about, job) {
    this.job = job;
    this.address = `/api/jobs/${job.id}`;
    this.watch = new Watch(about, new VideoPlayer(`${this.address}/video`, job.duration_ms));
    this.watch.codec = job.codec;
    this.watch.title = job.name;
    this.retry = null;
    this.labels = chooser("labels", t("watch.labels"), t("watch.labels.hint"), async (file) => {
      await api.put(`${this.address}/labels`, file);
      await this.watch.readActual(this.address);
    });
    this.other = chooser("other", t("watch.compare"), t("watch.compare.hint"), async (file) => {
      this.compare(file.name, await file.text());
    });
    this.alone = h("button", { onclick: () => this.show([this.result]) }, t("watch.compare.end"));
    this.watch.tools.append(this.labels);
    this.renders = new Renders(this.address, this.watch.player);
    this.watch.stopping.push(() => this.renders.stop());
  }

  // Show the results of one model or two.
  show(results) {
    const { watch } = this;
    performance.mark("result"); // until the overview is drawn
    watch.setModels(results);
    watch.views.forEach(({ track }, i) => track.replace(results[i].anticipations));
    watch.known = Infinity;
    watch.tools.replaceChildren(
      h("h2", {}, t("watch.downloads")),
      h("a", { href: `${this.address}/timeline`, download: "" }, t("watch.json")),
      h("a", { href: `${this.address}/timeline.csv`, download: "" }, t("watch.csv")),
      this.renders.element,
      this.labels,
      this.other,
      ...(results.length > 1 ? [this.alone] : []),
    );
  }

  compare(name, text) {
    let tree = null;
    try {
      tree = JSON.parse(text);
    } catch {
      // reported below
    }
    const right = (made) => Number.isFinite(made?.at_ms) && Array.isArray(made.predictions);
    if (!Array.isArray(tree?.anticipations) || !tree.anticipations.every(right))
      throw new Error(t("watch.compare.bad", { name }));
    this.show([this.result, { ...tree, model: tree.model ?? name }]);
  }

  async done() {
    this.result = await api.get(`${this.address}/timeline`);
    this.show([this.result]);
    this.renders.start();
  }

  async results() {
    try {
      await this.done();
    } catch (error) {
      if (error instanceof TypeError) this.retry = setTimeout(() => this.results(), RETRY_MS); // it may be restarting
      else toast(error.message);
    }
  }

  follow() {
    const { watch } = this;
    watch.known = 0;
    const source = follow(`${this.address}/events`, {
      anticipation: (forecast) => watch.track.add(forecast),
      gap: (gap) => watch.track.addGap(gap),
      progress: ({ done_ms }) => (watch.known = done_ms),
      state: ({ state, message }) => {
        if (state === "done") this.results();
        else if (state !== "running") watch.showNote(message || t("watch.state", { state }));
        if (state !== "running") source.close();
      },
    });
    watch.stopping.push(() => {
      source.close();
      clearTimeout(this.retry);
    });
  }
}

export async function watchJob(about, id) {
  const job = await api.get(`/api/jobs/${id}`);
  const view = new JobView(about, job);
  await view.watch.readActual(view.address);
  if (job.state === "done") await view.done();
  else if (job.state === "queued" || job.state === "running") view.follow();
  else view.watch.showNote(job.message || t("watch.state", { state: job.state }));
  return view.watch;
}
