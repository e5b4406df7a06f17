"""Resource use of the processes of a Ray cluster, sampled on each node during a run; and nodes that are killed."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hirag_dist.execution.ray.quota_actor import ACTOR_PREFIX

_SAMPLE_S = 0.5
_ANSWER_S = 5.0
_KINDS = {"ray::Worker": "workers", "ray::QuotaActor": "coordinator"}


class Probe:
    """Lives on one node, and looks at the processes of this program there; other builds' count too."""

    def usage(self) -> dict[tuple[str, int, float], tuple[str, float, int]]:
        """Return (machine, process, when it started) → (kind, CPU seconds, bytes handed to files)."""
        found = {}
        for process in psutil.process_iter(["pid", "create_time", "cmdline"]):
            title = " ".join(process.info["cmdline"] or [])
            kind = next((kind for name, kind in _KINDS.items() if title.startswith(name)), None)
            if kind is not None:
                with suppress(psutil.Error):
                    times, io = process.cpu_times(), process.io_counters()
                    written = int(getattr(io, "write_bytes", 0))
                    key = socket.gethostname(), process.info["pid"], process.info["create_time"]
                    found[key] = kind, times.user + times.system, written
        return found


@dataclass
class Watch:
    """Samples every node, and kills nodes when it is time. Use as a context manager, connected to the cluster.

    Args:
        own: the cluster if this process started it; nodes are killed only then.
        kill_at_s: when, after the start; a node with one CPU takes the place of each.

    Attributes:
        killed: how many were.
    """

    own: Cluster | None = None
    kill_at_s: tuple[float, ...] = ()
    killed: int = 0
    _last: dict[tuple[str, int, float], tuple[str, float, int]] = field(default_factory=dict)
    _first: dict[tuple[str, int, float], tuple[str, float, int]] = field(default_factory=dict)
    _probes: dict[str, Any] = field(default_factory=dict)
    _handled: dict[str, tuple[int, int]] = field(default_factory=dict)  # for each quota coordinator: requests, reports
    _handled_before: dict[str, tuple[int, int]] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failure: BaseException | None = None

    def __enter__(self) -> Watch:
        ray.cloudpickle.register_pickle_by_value(sys.modules[Probe.__module__])  # nodes elsewhere do not have this file
        self._sample()
        self._first, self._handled_before = dict(self._last), dict(self._handled)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()
        if error is None:
            self._sample()
        for probe in self._probes.values():
            ray.kill(probe)
        if self._failure is not None and error is None:
            raise self._failure

    def figures(self) -> dict[str, float]:
        """Return CPU seconds by kind, what workers wrote, messages to treasuries: of what ended, until then."""
        sums = dict.fromkeys(_KINDS.values(), 0.0)
        written = 0
        for key, (kind, cpu_s, n_bytes) in self._last.items():
            before = self._first.get(key, (kind, 0.0, 0))
            sums[kind] += cpu_s - before[1]
            written += n_bytes - before[2]
        asks, tells = (
            sum(counts[at] - self._handled_before.get(name, (0, 0))[at] for name, counts in self._handled.items())
            for at in (0, 1)
        )
        return {f"{kind}_cpu_s": round(cpu_s, 2) for kind, cpu_s in sums.items()} | {
            "written_mb": round(written / 1e6, 2),
            "asks": asks,
            "tells": tells,
        }

    def _watch(self) -> None:
        try:
            begun = time.monotonic()
            due = sorted(self.kill_at_s)
            while not self._over.wait(_SAMPLE_S):
                self._sample()
                if due and time.monotonic() - begun >= due[0]:
                    due.pop(0)
                    self._kill_a_node()
        except BaseException as error:
            self._failure = error

    def _sample(self) -> None:
        for node in ray.nodes():
            name = node["NodeID"]
            if not node["Alive"]:
                self._probes.pop(name, None)
            elif name not in self._probes:
                here = NodeAffinitySchedulingStrategy(name, soft=False)
                kind: Any = ray.remote(Probe)
                self._probes[name] = kind.options(num_cpus=0, scheduling_strategy=here).remote()
        asked = {name: probe.usage.remote() for name, probe in self._probes.items()}
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=_ANSWER_S)
        for ref in asked.values():
            with suppress(ray.exceptions.RayError):  # its node has just died, or has too much to do
                for key, use in ray.get(ref, timeout=0.1).items():
                    self._last[key] = use  # nodes of one machine see the same processes
        for each in ray.util.list_named_actors(all_namespaces=True):
            if each["name"].startswith(ACTOR_PREFIX):
                with suppress(ValueError, ray.exceptions.RayError):  # its build has just ended
                    coordinator = ray.get_actor(each["name"], namespace=each["namespace"])
                    handled: Any = ray.get(coordinator.handled.remote(), timeout=_ANSWER_S)
                    self._handled[each["name"]] = handled

    def _kill_a_node(self) -> None:
        assert self.own is not None
        victim = next(iter(self.own.worker_nodes), None)
        if victim is not None:
            self.own.remove_node(victim, allow_graceful=False)
            self.killed += 1
            self.own.add_node(num_cpus=1)
