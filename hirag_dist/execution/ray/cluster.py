"""A Ray to run on: reached, started, described."""

from __future__ import annotations

import logging
import socket
import traceback
import warnings
from typing import Any

import ray
from ray._private.node import Node

from hirag_dist.errors import BackendUnavailable

_CONNECT_S = 5.0
_STARTS = 3  # Ray gives a node 30 s to start: a machine with much else to do may need more


def start(address: str | None, n_cpus: int | None) -> None:
    """Connect this process to a cluster, or start one of its own where there is no address.

    Raises:
        BackendUnavailable: it is out of reach, or Ray does not start.
    """
    options: dict[str, Any] = {
        "address": "local",  # one of our own: another's on this machine may run other code
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "include_dashboard": False,
        "configure_logging": False,
    }
    if address is not None:
        options = {"address": address, "logging_level": logging.ERROR, "log_to_driver": False}
    elif n_cpus is not None:
        options["num_cpus"] = n_cpus
    logging.getLogger("ray").setLevel(logging.ERROR)
    for more in reversed(range(1 if address else _STARTS)):
        try:
            _check_reachable(address)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(**options)
            return
        except Exception as error:  # Ray raises a bare Exception where a node took too long to start
            ray.shutdown()
            kill_half_started(error)
            if more:
                continue
            where = f"the Ray cluster {address} is out of reach" if address else "Ray does not start on this machine"
            raise BackendUnavailable(f"{where}: {last_line(error)}; `--executor inline` does without it") from error


def kill_half_started(error: Exception) -> None:
    """End the processes of a node whose start failed: Ray itself leaves them until this process ends."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, Node):
            node.kill_all_processes(check_alive=False, allow_graceful=False)


def _check_reachable(address: str | None) -> None:
    """Raise OSError where nobody listens at HOST:PORT: Ray itself tries for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


def describe_cluster(address: str | None) -> str:
    """Return what a cluster has, starting one for the question where there is no address.

    Raises:
        BackendUnavailable: it is out of reach, or Ray does not start.
    """
    owns = not ray.is_initialized()
    if owns:
        start(address, None)
    try:
        found = ray.cluster_resources()
        nodes = sum(bool(node["Alive"]) for node in ray.nodes())
        return f"{ray.__version__}, {nodes} node(s), {found.get('CPU', 0):g} CPUs, {found.get('GPU', 0):g} GPUs"
    finally:
        if owns:
            ray.shutdown()


def last_line(error: BaseException) -> str:
    """Return what an error of Ray's says in the end: a remote traceback comes first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
