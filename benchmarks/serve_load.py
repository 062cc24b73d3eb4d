"""Ordinary requests to a server that others try to block with idle connections and slow bodies.

    python -m benchmarks.serve_load --idle 2000 --slow 500 --clients 200 --seconds 60

Idle connections send nothing; slow ones send a body at a byte per 25 s. Both are opened again when the server closes
them. Each client asks for the list of jobs once a second, over one connection. All come from addresses of 127.0.0.0/8,
as many as `--addresses` for the blockers, one for each client. The server is a process of its own.
"""

import argparse
import asyncio
import multiprocessing
import os
import resource
import tempfile
import time
from collections import Counter
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import psutil

from ballcast_server.predictors import PredictorFactory
from ballcast_server.settings import Settings
from ballcast_server.web.server import bind, running
from ballcast_server.web.service import Service
from benchmarks.serve import Quick

TOKEN = "a token of some length"
SLOW = b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nx"
ASKED = f"GET /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


def run_server(pipe: Connection) -> None:
    """Send the port, and run until something comes back."""
    listener = bind("127.0.0.1", 0)
    with tempfile.TemporaryDirectory() as data:
        service = Service(Settings(data=Path(data), token=TOKEN), PredictorFactory(Quick))  # type: ignore[arg-type]
        with running(service, listener):
            pipe.send(listener.getsockname()[1])
            pipe.recv()


async def block(port: int, address: str, until: float, *, slow: bool, counts: Counter[str]) -> None:
    """Hold a connection, and open another whenever it is closed."""
    while (left := until - time.monotonic()) > 0:
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            counts["slow" if slow else "idle"] += 1
            writer.write(SLOW if slow else b"")
            closed = asyncio.create_task(reader.read())
            while not closed.done() and left > 0:
                await asyncio.wait([closed], timeout=min(25, left))
                writer.write(b"x" if slow else b"")
                left = until - time.monotonic()
            writer.transport.abort()
        await asyncio.sleep(0.5)


async def ask(port: int, address: str, until: float, waits: list[float], counts: Counter[str]) -> None:
    """Ask once a second."""
    await asyncio.sleep(np.random.default_rng().uniform())
    while time.monotonic() < until:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            while time.monotonic() < until:
                began = time.perf_counter()
                writer.write(ASKED)
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
                await reader.readexactly(2)  # []
                waits.append(time.perf_counter() - began)
                counts[head.split()[1].decode()] += 1
                await asyncio.sleep(1)
            writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            counts[type(error).__name__] += 1
            await asyncio.sleep(1)


async def load(given: argparse.Namespace, port: int, server: psutil.Process) -> None:
    """Run all connections, and print what the clients got."""
    until = time.monotonic() + given.seconds
    opened, got, waits, memory = Counter[str](), Counter[str](), list[float](), [server.memory_info().rss]
    from_ = [f"127.1.{i // 250}.{1 + i % 250}" for i in range(given.addresses)]
    tasks = [block(port, from_[i % len(from_)], until, slow=False, counts=opened) for i in range(given.idle)]
    tasks += [block(port, from_[i % len(from_)], until, slow=True, counts=opened) for i in range(given.slow)]
    tasks += [ask(port, f"127.2.{i // 250}.{1 + i % 250}", until, waits, got) for i in range(given.clients)]
    began, used = time.monotonic(), sum(server.cpu_times()[:2])
    running_ = asyncio.gather(*tasks)
    while not running_.done():
        await asyncio.wait([asyncio.ensure_future(asyncio.sleep(1))])
        memory.append(server.memory_info().rss)
    await running_
    print(f"connections opened: {dict(opened)}; clients got {dict(got)}")
    p50, p99 = np.percentile(waits, [50, 99])
    print(f"answered in {1000 * p50:.0f} ms at the median, {1000 * p99:.0f} ms at p99, {1000 * max(waits):.0f} at most")
    cores = (sum(server.cpu_times()[:2]) - used) / (time.monotonic() - began)
    print(f"the server used {cores:.2f} cores; load of the machine: {os.getloadavg()[0]:.1f}")
    print(f"memory of the server: {memory[0] / 1e6:.0f} MB before, {max(memory) / 1e6:.0f} MB at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("idle", 2000), ("slow", 500), ("clients", 200), ("addresses", 25), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16_384), hard))
    pipe, other = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=run_server, args=(other,))
    server.start()
    try:
        asyncio.run(load(given, pipe.recv(), psutil.Process(server.pid)))
    finally:
        pipe.send("end")
        server.join()


if __name__ == "__main__":
    main()
