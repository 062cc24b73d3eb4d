"""Connect to a Ray cluster, or start Ray on this machine."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ballcast.core.errors import InputError, MissingExtra, first_line

CONNECT_S = 10.0  # to reach the cluster


@contextmanager
def ray_cluster(address: str | None) -> Iterator[Any]:
    """The module ray, connected; a connection that was there before stays.

    address: of a running cluster, such as 10.0.0.1:6379, ray://10.0.0.1:10001 or auto; None: this machine alone.
    """
    try:
        import ray
        import ray.data  # not in every installation of Ray
    except ImportError:
        raise MissingExtra("Ray Data", "ray") from None
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    try:
        if address is None:
            ray.init(**quiet, include_dashboard=False)
        else:
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if host and port.isdigit():  # Ray itself would try for minutes, and then end the process
                socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
            ray.init(address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        why = f"no Ray cluster answers there ({first_line(error)})"
        raise InputError(f"--cluster {address}: {why}; start one with `ray start --head`") from None
    try:
        yield ray
    finally:
        ray.shutdown()
