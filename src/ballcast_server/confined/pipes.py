"""Read a process's output with a time limit, on systems that can wait for a pipe and on those that cannot."""

import os
import queue
import select
import threading
from contextlib import suppress
from typing import IO, Protocol


class PipeReader(Protocol):
    """Reads a pipe with a time limit."""

    def read_into(self, view: memoryview, timeout_s: float) -> int | None:
        """Read at most as many bytes as fit; 0: the pipe has ended; None: nothing came in time."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...


class PollReader:
    """Reads a pipe where the system can wait for one."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._readable = select.poll()  # not select.select, which fails for descriptors above 1023
        self._readable.register(pipe, select.POLLIN)

    def read_into(self, view: memoryview, timeout_s: float) -> int | None:
        return os.readv(self._pipe.fileno(), [view]) if self._readable.poll(1000 * timeout_s) else None

    def close(self) -> None:
        """Nothing to do: the pipe is its process's."""


class ThreadReader:
    """Reads a pipe on a thread, where the system cannot wait for one, as on Windows."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._chunks: queue.Queue[bytes] = queue.Queue(4)
        self._left = memoryview(b"")
        self._ended = False
        self._closed = threading.Event()
        threading.Thread(target=self._fill, args=(pipe,), name="decoder-pipe", daemon=True).start()

    def _fill(self, pipe: IO[bytes]) -> None:
        chunk = b"begin"
        while chunk:
            chunk = b""
            with suppress(OSError, ValueError):  # the pipe was closed meanwhile
                chunk = os.read(pipe.fileno(), 1 << 20)
            while not self._closed.is_set():
                with suppress(queue.Full):
                    self._chunks.put(chunk, timeout=0.2)
                    break

    def read_into(self, view: memoryview, timeout_s: float) -> int | None:
        if not self._left and not self._ended:
            try:
                self._left = memoryview(self._chunks.get(timeout=timeout_s))
            except queue.Empty:
                return None
            self._ended = not self._left
        count = min(len(view), len(self._left))
        view[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        self._closed.set()


def pipe_reader(pipe: IO[bytes]) -> PipeReader:
    """A reader of the pipe that can wait on this system."""
    return PollReader(pipe) if hasattr(select, "poll") else ThreadReader(pipe)
