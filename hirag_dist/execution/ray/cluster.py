"""Connection to a Ray cluster: reached, started on this machine, described."""

from __future__ import annotations

import logging
import random
import signal
import socket
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import ray
from ray import _raylet
from ray._private import node
from ray._private.node import Node

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import BackendUnavailable

LOOPBACK = "127.0.0.1"
_AGENT_PORTS = range(10_000, 32_000)  # below the ports that systems give to outgoing connections
_UNUSED_PORTS = ("METRICS_AGENT_PORT_NAME", "METRICS_EXPORT_PORT_NAME", "DASHBOARD_AGENT_LISTEN_PORT_NAME")
_NO_PORT = -1


class LocalNode(Node):
    """A node that listens on loopback only.

    The raylet ends itself if the agents, two Python processes, have not named their ports within 15 s, which a loaded
    machine exceeds. So the one port that is used is chosen here, and the others are declared absent before the raylet
    starts. The monitor of the autoscaler and that of logs are not started.
    """

    def __init__(self, ray_params: Any, **options: Any) -> None:
        wanted = {
            "node_ip_address": LOOPBACK,
            "runtime_env_agent_port": free_port(),
            "no_monitor": True,
            "include_log_monitor": False,
        }
        ray_params.update(**{name: value for name, value in wanted.items() if hasattr(ray_params, name)})
        super().__init__(ray_params, **options)

    def start_raylet(self, *arguments: Any, **options: Any) -> None:
        """Start the raylet; it finds the ports of the agents in the folder of the session."""
        if hasattr(_raylet, "persist_port"):  # versions without it wait for no port
            for name in _UNUSED_PORTS:
                _raylet.persist_port(self._session_dir, self._node_id, getattr(_raylet, name), _NO_PORT)
        super().start_raylet(*arguments, **options)


@contextmanager
def local_nodes() -> Iterator[None]:
    """Start nodes as `LocalNode` while the block lasts.

    Ray has no public option for what `LocalNode` does, and would listen on every interface: so its class is replaced.
    """
    module: Any = node
    module.Node = LocalNode
    try:
        yield
    finally:
        module.Node = Node


def free_port() -> int:
    """Return a port of loopback that is free now, and that no outgoing connection will be given."""
    while True:
        port = random.choice(_AGENT_PORTS)
        with suppress(OSError), socket.socket() as trial:
            trial.bind((LOOPBACK, port))
            return port


_CONNECT_S = 5.0
_STARTS = 3  # Ray gives a node 30 s to start: a machine with much else to do may need more
_WORKER_START_S = 600  # Ray ends a worker that takes longer to start; its default is 60 s


def start(address: str | None, n_cpus: int | None) -> None:
    """Connect this process to a cluster, or start a new one without an address.

    Raises:
        BackendUnavailable: it is out of reach, or Ray does not start.
    """
    options: dict[str, Any] = {
        "address": "local",  # not a cluster of another process, which may run other code
        "include_dashboard": False,
        "_system_config": {"worker_register_timeout_seconds": _WORKER_START_S},
    }
    if address is not None:
        options = {"address": address}
    elif n_cpus is not None:
        options["num_cpus"] = n_cpus
    options |= {"configure_logging": False, "log_to_driver": False}
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray").propagate = True  # in the format of this process; `ray.init` removes the handlers
    for more in reversed(range(1 if address else _STARTS)):
        try:
            _check_reachable(address)
            with _own_sigterm(), warnings.catch_warnings(), nullcontext() if address else local_nodes():
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


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep this process's handler of SIGTERM, where it has one: `ray.init` puts one that exits in its place."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def kill_half_started(error: Exception) -> None:
    """End the processes of a node whose start failed: Ray itself leaves them until this process ends."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, Node):
            node.kill_all_processes(check_alive=False, allow_graceful=False)


def _check_reachable(address: str | None) -> None:
    """Raise OSError if no process listens at HOST:PORT: Ray itself tries for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


def count_cpus(beside_gpus: bool) -> int:
    """Return the CPUs of the cluster as it is; without those of nodes that have a GPU where others have CPUs."""
    return cpus_of((node["Resources"] for node in ray.nodes() if node["Alive"]), beside_gpus)


def cpus_of(nodes: Iterable[Mapping[str, float]], beside_gpus: bool) -> int:
    """Return the CPUs of nodes, given what each has, by the rule of `count_cpus`.

    >>> cpus_of([{"CPU": 0}, {"CPU": 16, "GPU": 1}], beside_gpus=True)  # a head that does no work is no other node
    16
    """
    all_of = list(nodes)
    without = [has for has in all_of if has.get("CPU") and not has.get("GPU")] if beside_gpus else []
    return int(sum(has.get("CPU", 0) for has in without or all_of))


def count_gpus() -> float:
    """Return the GPUs of the cluster as it is."""
    return float(ray.cluster_resources().get("GPU", 0))


def check_gpus() -> None:
    """Refuse workers with a GPU on a Ray of this machine's own, which no node will ever join, where it sees none.

    Raises:
        BackendUnavailable: there is none.
    """
    if count_gpus() < 1:
        raise BackendUnavailable(
            "execution.gpu_workers: Ray sees no GPU on this machine (`nvidia-smi`, CUDA_VISIBLE_DEVICES); set it to 0, "
            "or execution.ray_address to a cluster that has them"
        )


def describe_cluster(address: str | None, gpu_workers: int = 0) -> str:
    """Return a line about a cluster's resources; without an address a cluster is started for it.

    Args:
        gpu_workers: that a build would ask it for.

    Raises:
        BackendUnavailable: it is out of reach, or Ray does not start, or it can never have a GPU that is asked for.
    """
    owns = not ray.is_initialized()
    if owns:
        start(address, None)
    try:
        resources = ray.cluster_resources()
        nodes = sum(bool(node["Alive"]) for node in ray.nodes())
        description = (
            f"{ray.__version__}, {count_noun(nodes, 'node')}, {resources.get('CPU', 0):g} CPUs, "
            f"{resources.get('GPU', 0):g} GPUs"
        )
        if gpu_workers and address is None:
            check_gpus()
        if gpu_workers and count_gpus() < 1:
            description += "; a build waits for a node with a GPU when it has to compute on one"
        return description
    finally:
        if owns:
            ray.shutdown()


def check_own_node() -> None:
    """Raise BackendUnavailable where the node that this process is connected to has died: Ray would wait for ever."""
    own = ray.get_runtime_context().get_node_id()
    if not any(node["NodeID"] == own and node["Alive"] for node in ray.nodes()):
        raise BackendUnavailable(
            "the Ray node of this process has died; where memory was short, give execution.workers a lower number. "
            "Finished work is kept: run the same command again to continue"
        )


def last_line(error: BaseException) -> str:
    """Return the last line of an error of Ray: a remote traceback comes first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
