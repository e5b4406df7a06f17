"""Prometheus metrics of the service, of one process or of several together.

A process counts in memory; if PROMETHEUS_MULTIPROC_DIR names a folder, in files there whose counts the supervisor adds
up. Facts that cannot be added up (snapshot id, expiry of a certificate) each process writes to a small file there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric

from hirag_dist.service.access_log import RequestRecord
from hirag_dist.service.engine import Engine
from hirag_dist.service.load_shedding import LoadShedder

_multiprocess: Any = multiprocess  # it has no types

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_REQUEST_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_PART_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
_PARTS = frozenset({"embed", "search", "communities", "bridge", "sources", "render", "total"})
_FACTS = "facts-*.json"


class Metrics:
    """Metrics of one process. Labels have few values, none of which comes from callers.

    Args:
        registry: None for processes that count in files.
    """

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.registry = registry
        self._requests = Counter(
            "hirag_service_requests",
            "Finished requests, by method, status and kind of authentication.",
            ("method", "code", "caller"),
            registry=registry,
        )
        self._seconds = Histogram(
            "hirag_service_request_seconds",
            "Time from a request's arrival to its end.",
            ("method",),
            buckets=_REQUEST_S,
            registry=registry,
        )
        self._queued = Histogram(
            "hirag_service_queue_seconds",
            "Time that retrievals waited in the queue.",
            buckets=_PART_S,
            registry=registry,
        )
        self._refused = Counter(
            "hirag_service_refused",
            "Rejected requests: queue, deadline, full and answers by load shedding; rate, quota and concurrent by the "
            "caller's quotas; *_token and *_certificate by authentication; slow_reader for dropped streams.",
            ("reason",),
            registry=registry,
        )
        self._parts = Histogram(
            "hirag_retrieval_part_seconds",
            "Time of the parts of retrievals, and in total.",
            ("part",),
            buckets=_PART_S,
            registry=registry,
        )
        self._partial = Counter(
            "hirag_retrieval_partial", "Levels that a deadline cut off.", ("level",), registry=registry
        )
        self._tokens = Counter(
            "hirag_answer_tokens", "Input and output tokens of answers.", ("kind",), registry=registry
        )
        self._first_text = Histogram(
            "hirag_answer_first_text_seconds",
            "Time from an Answer's arrival to the first piece of text.",
            buckets=_REQUEST_S,
            registry=registry,
        )
        self._connections, self._closed = _connection_metrics(registry)
        self._swaps = Counter(
            "hirag_snapshot_swaps",
            "Hot swaps to a new snapshot, and failures to swap or to determine the current one.",
            ("outcome",),
            registry=registry,
        )
        self._cache = Counter(
            "hirag_question_cache",
            "Questions whose vector was in the cache (hit) or not (miss).",
            ("result",),
            registry=registry,
        )
        self._start_at_zero()
        self._sampled_engine: Engine | None = None
        self._cached = (0, 0)
        self._present = Gauge(
            "hirag_service_requests_in_flight",
            "Requests in progress: waiting, retrieving, answering or sending.",
            ("state",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._expected = Gauge(
            "hirag_service_expected_wait_seconds",
            "Expected wait of a new retrieval, in the process where it is longest.",
            registry=registry,
            multiprocess_mode="livemax",
        )

    def _start_at_zero(self) -> None:
        """Export a zero of each counter on which an alert is set: Prometheus sees no increase in a first sample."""
        for counter, values in (
            (self._swaps, ("ok", "failed")),
            (self._refused, ("queue", "deadline", "full", "answers")),
            (self._closed, ("client", "full")),
        ):
            for value in values:
                counter.labels(value).inc(0)

    def count_request(self, record: RequestRecord) -> None:
        """Count a finished request."""
        self._requests.labels(record.method, record.code, record.kind).inc()
        self._seconds.labels(record.method).observe(record.seconds)
        if record.reason:
            self._refused.labels(record.reason).inc()
        if not record.timings_ms:
            return
        self._queued.observe(record.queued_s)
        for part, milliseconds in record.timings_ms.items():
            if part in _PARTS:
                self._parts.labels(part).observe(milliseconds / 1e3)
        for level in record.partial:
            self._partial.labels(level).inc()
        if record.model:
            self._tokens.labels("input").inc(record.input_tokens)
            self._tokens.labels("output").inc(record.output_tokens)
        if record.first_text_s is not None:
            self._first_text.observe(record.first_text_s)

    def count_swap(self, ok: bool) -> None:
        """Count a hot swap, or a failed one."""
        self._swaps.labels("ok" if ok else "failed").inc()

    def count_closed(self, reason: str, count: int) -> None:
        """Count connections that were closed."""
        self._closed.labels(reason).inc(count)

    def sample(self, shedder: LoadShedder, engine: Engine | None, connections: int) -> None:
        """Set the gauges of the load and the connections, and add the engine's counts since the last sample."""
        rest = shedder.present - shedder.waiting - shedder.retrieving
        states = {
            "waiting": shedder.waiting,
            "retrieving": shedder.retrieving,
            "answering_or_sending": max(rest, 0),
        }
        for state, value in states.items():
            self._present.labels(state).set(value)
        self._expected.set(shedder.expected_wait_s)
        self._connections.set(connections)
        if engine is None:
            return
        before = self._cached if engine is self._sampled_engine else (0, 0)
        self._sampled_engine, self._cached = engine, engine.question_cache
        for result, count, sampled in zip(("hit", "miss"), self._cached, before, strict=True):
            self._cache.labels(result).inc(count - sampled)


def _connection_metrics(registry: CollectorRegistry | None) -> tuple[Gauge, Counter]:
    """Return the number of open connections, and the counter of those that the service closed."""
    open_now = Gauge(
        "hirag_service_connections", "Open gRPC connections.", registry=registry, multiprocess_mode="livesum"
    )
    closed = Counter(
        "hirag_service_connections_closed",
        "gRPC connections that the service closed: unused (no request in time), idle, client (more than one client may "
        "have), full (nearly as many as the process accepts).",
        ("reason",),
        registry=registry,
    )
    return open_now, closed


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """Facts of one process; times are seconds since 1970, None if there is none.

    Attributes:
        snapshot: id of the snapshot being served.
        created_at: time of its publication.
        loaded_at: time when this process loaded it.
        certificate_expires: end of the service's certificate.
        token_expires: end of the callers' token that expires next.
        callers: number of callers in the callers file.
        callers_failed: whether that file could not be loaded at the last check.
        serving: whether its health is SERVING.
    """

    snapshot: str = ""
    created_at: float | None = None
    loaded_at: float | None = None
    certificate_expires: float | None = None
    token_expires: float | None = None
    callers: int | None = None
    callers_failed: bool | None = None
    serving: bool = False

    def write(self, folder: Path, process: int) -> None:
        """Write the facts to the folder from which metrics are collected."""
        new = folder / f"facts-{process}.new"
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        new.replace(folder / f"facts-{process}.json")


class ProcessFactsCollector:
    """Prometheus collector of the facts in a folder.

    Args:
        folder: of the processes' facts.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Yield a family for each kind of fact."""
        read = _read_facts(self._folder)
        serving = sum(each["serving"] for each in read)
        yield GaugeMetricFamily("hirag_service_serving", "Processes that accept requests.", value=serving)
        info = GaugeMetricFamily(
            "hirag_snapshot_info", "Processes that serve a snapshot; several ids during a swap.", labels=["snapshot"]
        )
        ids = [each["snapshot"] for each in read if each["snapshot"]]
        for snapshot in sorted(set(ids)):
            info.add_metric([snapshot], ids.count(snapshot))
        yield info
        for name, key, text, choose in (
            (
                "hirag_snapshot_created_timestamp_seconds",
                "created_at",
                "Publication of the oldest snapshot being served.",
                min,
            ),
            (
                "hirag_snapshot_loaded_timestamp_seconds",
                "loaded_at",
                "Time when the last process loaded its snapshot.",
                max,
            ),
            (
                "hirag_service_certificate_expiry_timestamp_seconds",
                "certificate_expires",
                "Expiry of the service's certificate.",
                min,
            ),
            (
                "hirag_service_token_expiry_timestamp_seconds",
                "token_expires",
                "Expiry of the token that ends next.",
                min,
            ),
            (
                "hirag_service_callers",
                "callers",
                "Callers in the callers file; the lowest count of all processes.",
                min,
            ),
            (
                "hirag_service_callers_file_failed",
                "callers_failed",
                "1 while the callers file is missing, empty or wrong: former callers, or none, are valid.",
                max,
            ),
        ):
            values = [float(each[key]) for each in read if each[key] is not None]
            if values:
                yield GaugeMetricFamily(name, text, value=choose(values))


def any_serving(folder: Path) -> bool:
    """Return whether any of the processes with facts in a folder accepts requests."""
    return any(each["serving"] for each in _read_facts(folder))


def _read_facts(folder: Path) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = []
    for path in sorted(folder.glob(_FACTS)):
        with contextlib.suppress(OSError, ValueError):  # the process has just ended
            read.append(json.loads(path.read_text(encoding="utf-8")))
    return read


class WorkerMetrics:
    """Metrics of the supervisor, with the sums of its workers' metrics.

    Args:
        folder: of the workers' metrics.
        n_workers: configured number of workers.
    """

    def __init__(self, folder: Path, n_workers: int) -> None:
        self._folder = folder
        self.registry = CollectorRegistry()
        _multiprocess.MultiProcessCollector(self.registry, path=str(folder))
        self.registry.register(ProcessFactsCollector(folder))
        Gauge("hirag_service_workers", "Processes configured.", registry=self.registry).set(n_workers)
        self._deaths = Counter(
            "hirag_service_worker_deaths", "Worker processes that ended unexpectedly.", registry=self.registry
        )
        self._deaths.inc(0)

    def count_death(self, number: int, process_id: int) -> None:
        """Count a death, and remove the gauges and facts of the dead process."""
        self._deaths.inc()
        _multiprocess.mark_process_dead(process_id, path=str(self._folder))
        (self._folder / f"facts-{number}.json").unlink(missing_ok=True)


def process_metrics(folder: Path | None, *, several: bool = False) -> tuple[Metrics, CollectorRegistry | None]:
    """Return the metrics of this process, and their registry if this is the only process.

    Args:
        folder: of the facts; None for none.
        several: whether this process is one of several, whose counts the supervisor collects.
    """
    if several:
        return Metrics(None), None
    registry = CollectorRegistry()
    if FOLDER_VARIABLE in os.environ:  # set from outside: the library counts in files in this case too
        _multiprocess.MultiProcessCollector(registry)
        counted = None
    else:
        counted = registry
    if folder is not None:
        registry.register(ProcessFactsCollector(folder))
    return Metrics(counted), registry


def timestamp(text: str) -> float | None:
    """Return the seconds since 1970 of an RFC 3339 time in UTC, None if it is none.

    >>> timestamp("1970-01-01T00:01:00Z")
    60.0
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
