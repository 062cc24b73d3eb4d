// Talking to the server. What goes wrong is an Error with the server's own sentence.

async function answer(response) {
  if (response.status === 401) location.assign("/login");
  if (response.ok) return response.status === 204 ? null : response.json();
  let sentence = `the server answers ${response.status}`;
  try {
    sentence = (await response.json()).error ?? sentence;
  } catch {
    // not JSON: the number has to do
  }
  throw new Error(sentence);
}

export const get = async (path) => answer(await fetch(path));
export const post = async (path, tree) =>
  answer(
    await fetch(path, {
      method: "POST",
      headers: tree ? { "Content-Type": "application/json" } : {},
      body: tree ? JSON.stringify(tree) : null,
    }),
  );
export const put = async (path, body) => answer(await fetch(path, { method: "PUT", body }));
export const remove = async (path) => answer(await fetch(path, { method: "DELETE" }));

// fetch tells nothing of how far an upload is; the older interface does.
export function upload(file, progress) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.upload.addEventListener("progress", (event) => progress(event.loaded, event.total));
    request.addEventListener("load", () => {
      let tree = {};
      try {
        tree = JSON.parse(request.responseText);
      } catch {
        // as above
      }
      if (request.status === 401) location.assign("/login");
      if (request.status === 201) resolve(tree);
      else reject(new Error(tree.error ?? `the server answers ${request.status}`));
    });
    request.addEventListener("error", () => reject(new Error("the connection was cut; send the file again")));
    request.addEventListener("abort", () => reject(new Error("the upload was cancelled")));
    request.open("POST", "/api/uploads");
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("X-File-Name", encodeURIComponent(file.name));
    request.send(file);
  });
  return { done, cancel: () => request.abort() };
}
