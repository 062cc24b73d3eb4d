// Server-sent events while somebody looks.
//
// A browser keeps at most six connections to a server over HTTP/1.1, for all its tabs together: a tab that is hidden
// lets go of its own, and takes it up again when it is shown. What it missed comes first then.

const AGAIN_MS = 2000;

// kinds: event → what to do with its data. lost: called when the connection is, until it is there again.
// `close()` is for good.
export function follow(address, kinds, lost = () => {}) {
  let source = null;
  let timer = null;
  let over = false;
  const leave = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const open = () => {
    leave();
    source = new EventSource(address);
    for (const [kind, use] of Object.entries(kinds)) {
      source.addEventListener(kind, (event) => use(JSON.parse(event.data)));
    }
    source.addEventListener("error", () => {
      lost();
      // One that was refused, as by a server that just begins, is not tried again by the browser itself.
      if (source?.readyState === EventSource.CLOSED) timer = setTimeout(look, AGAIN_MS);
    });
  };
  const look = () => {
    if (over) return;
    if (document.hidden) leave();
    else if (source === null || source.readyState === EventSource.CLOSED) open();
  };
  document.addEventListener("visibilitychange", look);
  look();
  return {
    close() {
      over = true;
      document.removeEventListener("visibilitychange", look);
      leave();
    },
  };
}
