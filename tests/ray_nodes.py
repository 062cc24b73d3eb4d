"""Ray in tests: a cluster of nodes on this machine, in a process of its own, since a fault of Ray ends its process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
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


@contextmanager
def one_node(cpus: int) -> Iterator[str]:
    """The address of a cluster of one machine."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": cpus, "_system_config": CONFIG, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


@contextmanager
def two_nodes(cpus: int) -> Iterator[tuple[Any, list[Any]]]:
    """A cluster whose head has no core, so that nothing but drivers runs there, and two nodes that may be killed."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": CONFIG, "include_dashboard": False}
    )
    try:
        yield cluster, [cluster.add_node(num_cpus=cpus) for _ in range(2)]
    finally:
        cluster.shutdown()
