// Log in: the token is sent once, in the body of a request, and the server sets a session cookie.

import { t } from "./text.js";
import "./theme.js";

document.title = t("login.title");

async function login(token) {
  const response = await fetch("/api/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (response.ok) location.replace("/");
  else document.getElementById("error").textContent = (await response.json()).error;
}

document.getElementById("login").addEventListener("submit", (event) => {
  event.preventDefault();
  login(document.getElementById("token").value);
});

// The server prints the address of this page with its token after the #, which browsers do not send.
const token = location.hash.slice(1);
if (token) {
  history.replaceState(null, "", "/login");
  login(token);
}
