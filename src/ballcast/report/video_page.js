"use strict";
// Draws the timeline: a row for each action, darker where it was likelier; hatched where nothing was forecast.
(() => {
  const root = document.documentElement;
  document.getElementById("theme").onclick = () => {
    const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    draw();
  };
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("timeline");
  if (!canvas) return;
  const slider = document.getElementById("at"), out = document.getElementById("clock"), list = document.getElementById("made");
  const within = document.getElementById("within");
  const LEFT = 78, TOP = 4, BOTTOM = 22;
  let chosen = 0;
  slider.max = data.at.length - 1;
  const clock = (ms) => {
    const s = Math.round(ms / 1000), pad = (n) => String(n).padStart(2, "0");
    return s >= 3600 ? `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}` : `${Math.floor(s / 60)}:${pad(s % 60)}`;
  };
  function draw() {
    const ratio = devicePixelRatio || 1, wide = canvas.clientWidth, tall = canvas.clientHeight;
    canvas.width = wide * ratio; canvas.height = tall * ratio;
    const pen = canvas.getContext("2d"), css = getComputedStyle(root), colour = (name) => css.getPropertyValue(name).trim();
    pen.scale(ratio, ratio);
    const row = (tall - TOP - BOTTOM) / data.labels.length;
    const x = (ms) => LEFT + (wide - LEFT) * ms / data.end;
    pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "middle";
    data.labels.forEach((label, i) => {
      pen.fillStyle = colour("--ink"); pen.fillText(label, 0, TOP + (i + 0.5) * row);
      pen.fillStyle = colour("--line"); pen.fillRect(LEFT, TOP + (i + 1) * row - 1, wide - LEFT, 1);
    });
    for (const gap of data.gaps) {
      const a = x(1000 * gap.from), b = Math.max(a + 2, x(1000 * gap.to));
      pen.save(); pen.beginPath(); pen.rect(a, TOP, b - a, tall - TOP - BOTTOM); pen.clip();
      pen.strokeStyle = colour("--quiet"); pen.beginPath();
      for (let at = a - tall; at < b; at += 7) { pen.moveTo(at, tall); pen.lineTo(at + tall, 0); }
      pen.stroke(); pen.restore();
    }
    const hues = data.labels.map((_, i) => colour(`--action-${i}`)), width = Math.max(1.5, x(data.every) - x(0));
    data.at.forEach((at, n) => {
      const best = new Map(data.within[n].map((sure, action) => [action, sure]));
      if (!best.size) for (const [action, , sure] of data.made[n]) best.set(action, Math.max(sure, best.get(action) || 0));
      for (const [action, sure] of best) {
        pen.globalAlpha = 0.15 + 0.85 * sure / 100; pen.fillStyle = hues[action];
        const high = (row - 3) * sure / 100;
        pen.fillRect(x(at), TOP + (action + 1) * row - 1 - high, width, high);
      }
    });
    pen.globalAlpha = 1; pen.fillStyle = colour("--quiet"); pen.textAlign = "center";
    const step = [5, 10, 30, 60, 300, 600, 1800].find((s) => (wide - LEFT) * 1000 * s / data.end > 60) || 3600;
    for (let s = 0; 1000 * s <= data.end; s += step) pen.fillText(clock(1000 * s), Math.min(wide - 18, Math.max(LEFT + 12, x(1000 * s))), tall - 8);
    pen.textAlign = "start"; pen.fillStyle = colour("--accent"); pen.fillRect(x(data.at[chosen]) - 1, TOP, 2, tall - TOP - BOTTOM);
  }
  function choose(n) {
    chosen = Math.max(0, Math.min(data.at.length - 1, n)); slider.value = chosen;
    out.value = clock(data.at[chosen]); slider.setAttribute("aria-valuetext", out.value);
    list.replaceChildren(...data.made[chosen].slice(0, 8).map(([action, ahead, sure]) => {
      const item = document.createElement("li"), name = document.createElement("span");
      name.className = "label"; name.style.setProperty("--hue", `var(--action-${action})`);
      name.textContent = `${data.labels[action]} ${sure} %`;
      item.append(name, ` in ${(ahead / 1000).toFixed(1)} s`); return item;
    }));
    const likely = data.within[chosen].map((sure, action) => [sure, data.labels[action]]).filter(([sure]) => sure).sort((a, b) => b[0] - a[0]);
    within.textContent = likely.length ? `At least one within 5 s: ${likely.map(([sure, label]) => `${label} ${sure}\u00a0%`).join(", ")}` : "";
    draw();
  }
  const nearest = (ms) => data.at.reduce((best, at, n) => Math.abs(at - ms) < Math.abs(data.at[best] - ms) ? n : best, 0);
  const point = (event) => choose(nearest(data.end * (event.offsetX - LEFT) / (canvas.clientWidth - LEFT)));
  canvas.onpointerdown = (event) => { canvas.setPointerCapture(event.pointerId); point(event); };
  canvas.onpointermove = (event) => { if (event.buttons) point(event); };
  slider.oninput = () => choose(+slider.value);
  for (const button of document.querySelectorAll(".moment")) button.onclick = () => { choose(nearest(+button.dataset.at)); canvas.scrollIntoView({ block: "center" }); };
  addEventListener("resize", draw);
  choose(0);
})();
