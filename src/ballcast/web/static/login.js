// The token is sent once, in a request's body, and traded for a cookie.

import "./theme.js";

document.getElementById("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = document.getElementById("said");
  const response = await fetch("/api/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token: document.getElementById("token").value }),
  });
  if (response.ok) location.assign("/");
  else said.textContent = (await response.json()).error;
});
