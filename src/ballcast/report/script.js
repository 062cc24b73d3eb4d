"use strict";
// The theme: the system's wish until the viewer has one of their own.
const root = document.documentElement;
const button = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const shown = () => root.dataset.theme || (system.matches ? "dark" : "light");
const label = () => { button.textContent = shown() === "dark" ? "Light" : "Dark"; };
button.addEventListener("click", () => { root.dataset.theme = shown() === "dark" ? "light" : "dark"; label(); });
system.addEventListener("change", label);
label();

// The tolerance whose curves stand out.
for (const choice of document.querySelectorAll("input[name=tolerance]")) {
  choice.addEventListener("change", () => {
    document.querySelector(".curves").dataset.tolerance = choice.value;
  });
}
