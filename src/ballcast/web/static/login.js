// Log in: the token is sent once, in the body of a request, and the server sets a session cookie.

import "./theme.js";

document.getElementById("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const error = document.getElementById("error");
  const response = await fetch("/api/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token: document.getElementById("token").value }),
  });
  if (response.ok) location.assign("/");
  else error.textContent = (await response.json()).error;
});
