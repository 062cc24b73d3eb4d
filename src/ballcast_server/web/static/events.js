// Server-sent events while the tab is visible.
//
// A browser opens at most six connections to a server over HTTP/1.1, for all its tabs together: a hidden tab closes
// its connection, and opens it again when it is shown. The server then sends the missed events first.

export const FOLLOWED = ["running", "slow", "filling"]; // states of a stream whose frames arrive
const RETRY_MS = 2000;

// handlers: event type → function of its data. lost: called when the connection is lost.
// Returns an object whose `close()` ends it.
export function follow(address, handlers, lost = () => {}) {
  let source = null;
  let timer = null;
  let closed = false;
  const disconnect = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const open = () => {
    disconnect();
    source = new EventSource(address);
    for (const [type, handle] of Object.entries(handlers)) {
      source.addEventListener(type, (event) => handle(JSON.parse(event.data)));
    }
    source.addEventListener("error", () => {
      lost();
      // The browser does not retry after an error status, as from a server that is starting.
      if (source?.readyState === EventSource.CLOSED) timer = setTimeout(update, RETRY_MS);
    });
  };
  const update = () => {
    if (closed) return;
    if (document.hidden) disconnect();
    else if (source === null || source.readyState === EventSource.CLOSED) open();
  };
  document.addEventListener("visibilitychange", update);
  update();
  return {
    close() {
      closed = true;
      document.removeEventListener("visibilitychange", update);
      disconnect();
    },
  };
}
