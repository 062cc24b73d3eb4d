// Draws a match's forecasts: the timeline of both teams, the actions and the pitch at a time, and a replay.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const words = (text) => new Uint16Array(bytes(text).buffer);
  const shot = words(data.shot), actions = words(data.actions), zones = bytes(data.zones);
  const n = data.at.length, end = data.at[n - 1];
  const colours = ["#f94e83", "#2c93b7"];
  const timeline = document.getElementById("timeline"), pitch = document.getElementById("pitch");
  const slider = document.getElementById("at"), play = document.getElementById("play");
  let now = 0, timer = 0;

  const sized = (canvas) => {
    const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
    canvas.width = box.width * ratio;
    canvas.height = box.height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    return [pen, box.width, box.height];
  };
  const ink = () => getComputedStyle(document.body).color;
  const nearest = (ms) => {
    let low = 0, high = n - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.at[middle] < ms) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  const drawTimeline = () => {
    const [pen, width, height] = sized(timeline), middle = height / 2;
    const top = Math.max(200, ...shot) * 1.2;
    const x = (ms) => (ms / end) * width, y = (value, team) => middle + (team ? 1 : -1) * (value / top) * (middle - 6);
    for (const team of [0, 1]) {
      pen.fillStyle = colours[team];
      pen.beginPath();
      pen.moveTo(0, middle);
      for (let i = 0; i < n; i++) pen.lineTo(x(data.at[i]), y(shot[2 * i + team], team));
      pen.lineTo(width, middle);
      pen.fill();
    }
    pen.fillStyle = pen.strokeStyle = ink();
    pen.font = "12px system-ui, sans-serif";
    pen.fillRect(0, middle, width, 1);
    for (const [name, begin] of Object.entries(data.begins)) {
      pen.globalAlpha = 0.5;
      pen.fillRect(x(begin), 0, 1, height);
      pen.fillText(name, x(begin) + 4, height - 6);
      pen.globalAlpha = 1;
    }
    for (const [ms, team, goal] of data.shots) {
      const side = goal < 0 ? 1 - team : team;
      pen.fillStyle = goal ? ink() : colours[team];
      pen.font = goal ? "18px system-ui" : "10px system-ui";
      pen.fillText(goal ? "★" : "●", x(ms) - (goal ? 8 : 4), side ? height - 8 : 14);
    }
    pen.fillStyle = ink();
    pen.fillRect(x(data.at[now]), 0, 2, height);
  };

  const drawPitch = () => {
    const [pen, width, height] = sized(pitch), [columns, rows] = data.grid;
    const begin = now * columns * rows;
    pen.fillStyle = colours[data.team[now]];
    for (let c = 0; c < columns; c++) {
      for (let r = 0; r < rows; r++) {
        pen.globalAlpha = zones[begin + c * rows + r] / 255;
        pen.fillRect((c * width) / columns, (r * height) / rows, width / columns + 0.5, height / rows + 0.5);
      }
    }
    pen.globalAlpha = 0.7;
    pen.strokeStyle = ink();
    pen.strokeRect(1, 1, width - 2, height - 2);
    pen.beginPath();
    pen.moveTo(width / 2, 0);
    pen.lineTo(width / 2, height);
    pen.moveTo(width * 0.5871, height / 2);
    pen.arc(width / 2, height / 2, width * 0.0871, 0, 7);
    pen.stroke();
    for (const left of [0, 1]) {
      pen.strokeRect(left ? 0 : width * 0.843, height * 0.204, width * 0.157, height * 0.593);
      pen.strokeRect(left ? 0 : width * 0.948, height * 0.365, width * 0.052, height * 0.269);
    }
    document.getElementById("side").textContent = `${data.names[data.team[now]]} attack to the right`;
  };

  const bars = data.labels.map((label) => {
    const row = document.createElement("div"), bar = document.createElement("i"), value = document.createElement("b");
    row.append(label, bar, value);
    document.getElementById("actions").append(row);
    return [bar, value];
  });

  const show = (i) => {
    now = i;
    slider.value = i;
    document.getElementById("clock").textContent = data.clock[i];
    bars.forEach(([bar, value], c) => {
      const chance = actions[i * bars.length + c] / 10;
      bar.style.width = `${chance}%`;
      value.textContent = `${chance.toFixed(chance < 10 ? 1 : 0)} %`;
    });
    drawTimeline();
    drawPitch();
  };

  slider.max = n - 1;
  slider.addEventListener("input", () => show(Number(slider.value)));
  timeline.addEventListener("click", (event) => {
    const box = timeline.getBoundingClientRect();
    show(nearest(((event.clientX - box.left) / box.width) * end));
  });
  play.addEventListener("click", () => {
    if (timer) {
      clearInterval(timer);
      timer = 0;
    } else {
      timer = setInterval(() => (now < n - 1 ? show(now + 1) : play.click()), 250);
    }
    play.textContent = timer ? "Pause" : "Play";
  });
  const body = document.querySelector("#moments tbody");
  for (const [ms, team, chance, came, clock] of data.moments) {
    const row = body.insertRow();
    for (const text of [clock, data.names[team], `${(100 * chance).toFixed(0)} %`, ["", "shot", "goal"][came]]) {
      row.insertCell().textContent = text;
    }
    row.addEventListener("click", () => show(nearest(ms)));
  }
  window.addEventListener("resize", () => show(now));
  show(data.moments.length ? nearest(data.moments[0][0]) : 0);
})();
