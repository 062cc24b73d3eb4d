// The start page: upload or submit a video, follow its progress, choose a video or stream to watch.

import * as api from "./api.js";
import { clock, h, percent, size, toast } from "./dom.js";
import { t } from "./text.js";

const POLL_MS = 1500;

export class Home {
  constructor(about) {
    this.about = about;
    this.stopped = false;
    this.rows = new Map(); // job id → its row, kept to avoid flicker
    this.input = h("input", {
      type: "file",
      id: "file",
      class: "hidden-file",
      accept: "video/*,.mkv,.ts,.mts,.m2ts,.mpg,.json,.xml",
      multiple: true,
      onchange: () => {
        this.sendAll([...this.input.files]);
        this.input.value = "";
      },
    });
    this.drop = h(
      "label",
      { class: "drop card", for: "file" },
      h("strong", {}, t("home.drop")),
      h(
        "span",
        { class: "quiet" },
        t("home.formats", { size: size(about.upload_bytes), minutes: Math.round(about.video_s / 60) }),
      ),
      this.input,
    );
    for (const kind of ["dragover", "dragleave", "drop"]) {
      this.drop.addEventListener(kind, (event) => {
        event.preventDefault();
        this.drop.classList.toggle("over", kind === "dragover");
        if (kind === "drop") this.sendAll([...event.dataTransfer.files]);
      });
    }
    this.sending = h("div", { class: "sending" });
    this.jobs = h("ul", { class: "rows", "data-testid": "jobs" });
    this.none = h("p", { class: "quiet" }, t("home.none"));
    this.videos = h("section", { hidden: true });
    this.streams = h("section", { hidden: true });
    this.element = h(
      "div",
      { class: "home" },
      h(
        "section",
        { class: "intro" },
        h("h1", {}, t("home.title")),
        h("p", {}, t("home.about")),
        ...origins(about).map((text) => h("p", { class: "origin", "data-testid": "origin" }, text)),
        this.drop,
        this.sending,
      ),
      this.streams,
      h("section", {}, h("h2", {}, t("home.videos")), this.none, this.jobs),
      this.videos,
    );
  }

  async start() {
    const poll = async () => {
      if (!document.hidden) {
        try {
          await this.refresh();
        } catch {
          // the server may be restarting; try again
        }
      }
      schedule();
    };
    const schedule = () => {
      if (!this.stopped) this.timer = setTimeout(poll, POLL_MS); // the view may have changed during the request
    };
    await Promise.all([this.offerVideos(), this.refresh()]);
    schedule();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  key() {
    return false;
  }

  // Videos one by one; the JSON and XML files together, as one match's event feed.
  async sendAll(list) {
    const feed = list.filter((file) => /\.(json|xml)$/i.test(file.name));
    for (const file of list) if (!feed.includes(file)) this.send(file);
    if (!feed.length) return;
    const row = h("div", { class: "card sending-row" }, h("strong", { class: "cut" }, feed[0].name), t("home.reading"));
    this.sending.append(row);
    try {
      const record = await api.sendFeed(feed);
      location.assign(`/feeds/${record.id}`);
    } catch (error) {
      toast(error.message);
    }
    row.remove();
  }

  async send(file) {
    if (file.size > this.about.upload_bytes) {
      toast(t("home.tooLarge", { name: file.name, size: size(this.about.upload_bytes) }));
      return;
    }
    const text = h("span", {});
    const meter = h("progress", { max: "1", value: "0", "aria-label": t("home.uploaded") });
    const { done, cancel } = api.upload(file, (loaded, total) => {
      meter.value = loaded / total;
      text.textContent = loaded < total ? t("home.sent", { percent: percent(loaded / total) }) : t("home.checking");
    });
    const row = h(
      "div",
      { class: "card sending-row" },
      h("strong", { class: "cut" }, file.name),
      meter,
      text,
      h("button", { onclick: cancel, "aria-label": t("home.cancel.of", { name: file.name }) }, t("home.cancel")),
    );
    this.sending.append(row);
    try {
      await done;
      await this.refresh();
    } catch (error) {
      toast(error.message);
    }
    row.remove();
  }

  async offerVideos() {
    const videos = await api.get("/api/videos");
    this.videos.hidden = !videos.length;
    const submit = async (video) => {
      try {
        await api.post("/api/jobs", { video: video.id });
        await this.refresh();
        scrollTo({ top: 0, behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      } catch (error) {
        toast(error.message);
      }
    };
    this.videos.replaceChildren(
      h("h2", {}, t("home.server")),
      h(
        "ul",
        { class: "rows", "data-testid": "videos" },
        videos.map((video) =>
          h(
            "li",
            { class: "card row" },
            h("span", { class: "cut grow" }, video.name),
            h("span", { class: "quiet words" }, size(video.bytes)),
            h(
              "button",
              { onclick: () => submit(video), "aria-label": t("home.anticipate.of", { name: video.name }) },
              t("home.anticipate"),
            ),
          ),
        ),
      ),
    );
  }

  async refresh() {
    const [jobs, streams] = await Promise.all([api.get("/api/jobs"), api.get("/api/streams")]);
    this.none.hidden = jobs.length > 0;
    for (const [id, row] of this.rows) {
      if (!jobs.some((job) => job.id === id)) {
        row.element.remove();
        this.rows.delete(id);
      }
    }
    jobs.forEach((job, i) => {
      let row = this.rows.get(job.id);
      if (!row) {
        row = new Row(job, () => this.refresh());
        this.rows.set(job.id, row);
      }
      if (this.jobs.children[i] !== row.element) this.jobs.insertBefore(row.element, this.jobs.children[i] ?? null);
      row.show(job);
    });
    this.offerStreams(streams);
  }

  offerStreams(streams) {
    this.streams.hidden = !streams.length;
    const words = (stream) =>
      stream.state === "idle" ? t("home.noViewers") : t("home.viewers", { state: stream.state, count: stream.viewers });
    const list = streams.map((stream) =>
      h(
        "li",
        { class: "card row" },
        h("strong", { class: "grow cut" }, h("span", { class: `dot ${stream.state}` }), stream.name),
        h("span", { class: "quiet words" }, words(stream)),
        h(
          "a",
          {
            class: "button first",
            href: `#/stream/${encodeURIComponent(stream.name)}`,
            "aria-label": t("home.watchLive.of", { name: stream.name }),
          },
          t("home.watchLive"),
        ),
      ),
    );
    const key = JSON.stringify(streams);
    if (key === this.streamsKey) return;
    this.streamsKey = key;
    this.streams.replaceChildren(h("h2", {}, t("home.live")), h("ul", { class: "rows", "data-testid": "streams" }, list));
  }
}

// What the models were trained on: their forecasts are worth no more.
function origins(about) {
  return (about.models ?? [])
    .filter(({ origin }) => origin)
    .map(({ model, origin }) => (about.models.length > 1 ? t("origin.of", { model, origin }) : t("origin", { origin })));
}

// The row of a job. Its buttons stay the same elements, so that a refresh does not lose a click.
class Row {
  constructor(job, refresh) {
    const act = (request) => async () => {
      try {
        await request();
      } catch (error) {
        toast(error.message);
      }
      await refresh();
    };
    this.meter = h("progress", { max: "1", "aria-label": t("home.computed") });
    this.words = h("span", { class: "words" });
    this.watch = h(
      "a",
      { class: "button first", href: `#/job/${job.id}`, "aria-label": t("home.watch.of", { name: job.name }) },
      t("home.watch"),
    );
    this.cancel = h(
      "button",
      {
        onclick: act(() => api.post(`/api/jobs/${job.id}/cancel`)),
        "aria-label": t("home.cancel.of", { name: job.name }),
      },
      t("home.cancel"),
    );
    this.remove = h(
      "button",
      {
        class: "icon remove",
        title: t("home.delete"),
        "aria-label": t("home.delete.of", { name: job.name }),
        onclick: act(() => api.remove(`/api/jobs/${job.id}`)),
      },
      "✕",
    );
    this.element = h(
      "li",
      { class: "card row", "data-job": job.id },
      h("strong", { class: "cut grow" }, job.name),
      h("span", { class: "state" }, this.meter, this.words),
      this.cancel,
      this.watch,
      this.remove,
    );
  }

  show(job) {
    const active = job.state === "queued" || job.state === "running";
    this.element.dataset.state = job.state;
    this.meter.hidden = job.state !== "running";
    if (job.duration_ms) this.meter.value = job.done_ms / job.duration_ms;
    const words = {
      queued: t("home.queued"),
      running: t("home.progress", {
        done: clock(job.done_ms),
        total: job.duration_ms ? clock(job.duration_ms) : t("home.unknown"),
      }),
      done: job.duration_ms ? clock(job.duration_ms) : t("home.done"),
      cancelled: t("home.cancelled"),
      failed: job.message,
    };
    this.words.textContent = words[job.state];
    this.cancel.hidden = !active;
    this.remove.hidden = active;
    this.watch.hidden = job.state === "failed" || job.state === "cancelled";
  }
}
