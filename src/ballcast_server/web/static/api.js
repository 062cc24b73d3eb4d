// Requests to the server. A failed one throws an Error with the server's message.

import { t } from "./text.js";

async function parse(response) {
  if (response.status === 401) location.assign("/login");
  if (response.ok) return response.status === 204 ? null : response.json();
  let message = t("api.status", { status: response.status });
  try {
    message = (await response.json()).error ?? message;
  } catch {
    // not JSON: report the status only
  }
  throw new Error(message);
}

export const get = async (path) => parse(await fetch(path));
export const post = async (path, tree) =>
  parse(
    await fetch(path, {
      method: "POST",
      headers: tree ? { "Content-Type": "application/json" } : {},
      body: tree ? JSON.stringify(tree) : null,
    }),
  );
export const put = async (path, body) => parse(await fetch(path, { method: "PUT", body }));
export const remove = async (path) => parse(await fetch(path, { method: "DELETE" }));

// Upload a file. XMLHttpRequest, because fetch does not report the progress of an upload.
export function upload(file, progress) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.upload.addEventListener("progress", (event) => progress(event.loaded, event.total));
    request.addEventListener("load", () => {
      let tree = {};
      try {
        tree = JSON.parse(request.responseText);
      } catch {
        // not JSON: report the status only
      }
      if (request.status === 401) location.assign("/login");
      if (request.status === 201) resolve(tree);
      else reject(new Error(tree.error ?? t("api.status", { status: request.status })));
    });
    request.addEventListener("error", () => reject(new Error(t("api.lost"))));
    request.addEventListener("abort", () => reject(new Error(t("api.cancelled"))));
    request.open("POST", "/api/uploads");
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("X-File-Name", encodeURIComponent(file.name));
    request.send(file);
  });
  return { done, cancel: () => request.abort() };
}

// Send the files of a match's event feed; resolves to its record, whose page is /feeds/{id}.
export async function sendFeed(list) {
  let record = null;
  for (const file of list) {
    const response = await fetch(record ? `/api/feeds?with=${record.id}` : "/api/feeds", {
      method: "POST",
      headers: { "Content-Type": "application/octet-stream", "X-File-Name": encodeURIComponent(file.name) },
      body: file,
    });
    record = await parse(response);
    if (record.ready) break;
  }
  if (!record.ready) throw new Error(record.message);
  return record;
}
