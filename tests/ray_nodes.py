"""Ray in tests: one cluster on this machine for all of them, in a separate process, since a fault of Ray ends that."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

import pytest

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (pip install 'ballcast[ray]')")
ROOT = Path(__file__).parent.parent

# A node is dead if its connection is refused five times, 0.5 s apart; one that only is slow, on two cores that other
# tests share, has half a minute for each answer.
CONFIG = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 30_000,
    "health_check_failure_threshold": 5,
    "agent_register_timeout_ms": 120_000,
    "worker_register_timeout_seconds": 180,
    "memory_monitor_refresh_ms": 0,  # other tests' memory is no reason to end workers
}
ENVIRONMENT = {
    "RAY_worker_niceness": "0",  # of 15 by default: beside other tests they would hardly start
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",
}


def run_apart(module: str, *args: object, timeout: float = 420) -> str:
    """Run a module of the tests in a process of its own; what it printed. It fails with all its output."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(ROOT / "tests")])
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", module, *map(str, args)],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # prints where its threads are; Ray's reaper then ends the nodes
        printed, _ = process.communicate()
        pytest.fail(f"{module} did not end within {timeout:g} s:\n{printed}")
    assert process.returncode == 0, f"{module} ended with {process.returncode}:\n{printed}"
    return printed


class Nodes:
    """The cluster of a worker of pytest, from any of its processes. It starts when nodes are first asked for."""

    def __init__(self, door: str) -> None:
        self.door = door  # the socket of the process that holds the cluster

    def have(self, count: int, cpus: int) -> str:
        """The address of the cluster, once it has exactly `count` nodes of `cpus` cores beside its head."""
        return self._ask("have", count, cpus)

    def kill(self) -> None:
        """Kill the newest node as a power cut would."""
        self._ask("kill")

    def _ask(self, *order: Any) -> Any:
        with Client(self.door, "AF_UNIX") as holder:
            holder.send(order)
            answer = holder.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def holding_nodes(folder: Path) -> Iterator[Nodes]:
    """Start the process that holds the cluster, and end both."""
    door = str(folder / "nodes")
    command = [sys.executable, "-X", "faulthandler", __file__, door]
    holder = subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        holder.stdout.readline()  # it listens
        yield Nodes(door)
    finally:
        holder.stdin.close()
        holder.wait(60)


def hold(door: str) -> None:
    """Serve the orders of `Nodes` until standard input ends. The head has no core: nothing but drivers runs there."""
    from ray.cluster_utils import Cluster

    cluster: Any = None
    nodes: list[tuple[int, Any]] = []  # cores, node

    def end() -> None:
        sys.stdin.read()
        if cluster is not None:
            cluster.shutdown()
        os._exit(0)

    threading.Thread(target=end).start()
    with Listener(door, "AF_UNIX") as listener:
        print("listening", flush=True)  # noqa: T201
        while True:
            with listener.accept() as asking:
                order, *sizes = asking.recv()
                try:
                    if cluster is None:
                        head = {"num_cpus": 0, "_system_config": CONFIG, "include_dashboard": False}
                        cluster = Cluster(initialize_head=True, head_node_args=head)
                    if order == "kill":
                        cluster.remove_node(nodes.pop()[1], allow_graceful=False)
                    else:
                        count, cpus = sizes
                        fitting = [each for each in nodes if each[0] == cpus][:count]
                        for each in nodes:
                            if each not in fitting:
                                cluster.remove_node(each[1])
                        nodes = fitting
                        while len(nodes) < count:
                            nodes.append((cpus, cluster.add_node(num_cpus=cpus)))
                except Exception as error:
                    asking.send(error)
                else:
                    asking.send(cluster.address)


if __name__ == "__main__":
    hold(sys.argv[1])
