"""Prometheus metrics of the service, of one process or of several together.

A process counts in memory, or in files that the supervisor adds up where PROMETHEUS_MULTIPROC_DIR names a folder. What
cannot be added up (which snapshot, until when a certificate is good) each process writes to a small file of its own.
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
    """What one process counts. Labels are few and none is given by callers.

    Args:
        registry: None registers nowhere, for processes that count in files.
    """

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._requests = Counter(
            "hirag_service_requests",
            "Requests that ended, by method, status and how the caller is known.",
            ("method", "code", "caller"),
            registry=registry,
        )
        self._seconds = Histogram(
            "hirag_service_request_seconds",
            "From a request's arrival to its end.",
            ("method",),
            buckets=_REQUEST_S,
            registry=registry,
        )
        self._queued = Histogram(
            "hirag_service_queue_seconds",
            "What retrievals waited for their turn.",
            buckets=_PART_S,
            registry=registry,
        )
        self._refused = Counter(
            "hirag_service_refused",
            "Requests turned away: queue, deadline, full and answers for load; rate, quota and concurrent for the "
            "caller's limits; *_token and *_certificate for who asked; slow_reader for streams dropped.",
            ("reason",),
            registry=registry,
        )
        self._parts = Histogram(
            "hirag_retrieval_part_seconds",
            "Parts of retrievals, and their total.",
            ("part",),
            buckets=_PART_S,
            registry=registry,
        )
        self._partial = Counter(
            "hirag_retrieval_partial", "Levels that a deadline cut off.", ("level",), registry=registry
        )
        self._tokens = Counter(
            "hirag_answer_tokens", "Tokens that answers read and wrote.", ("kind",), registry=registry
        )
        self._first_text = Histogram(
            "hirag_answer_first_text_seconds",
            "From an Answer's arrival to the first piece of text.",
            buckets=_REQUEST_S,
            registry=registry,
        )
        self._swaps = Counter(
            "hirag_snapshot_swaps",
            "Snapshots taken up, and failures to, or to see which is current.",
            ("outcome",),
            registry=registry,
        )
        self._cache = Counter(
            "hirag_question_cache",
            "Questions whose vector was remembered, or had to be made.",
            ("result",),
            registry=registry,
        )
        self._looked_at: Engine | None = None
        self._cached = (0, 0)
        self._present = Gauge(
            "hirag_service_requests_in_flight",
            "Requests in the service: waiting, retrieving, answering, or sending.",
            ("state",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._expected = Gauge(
            "hirag_service_expected_wait_seconds",
            "What a retrieval that comes now is expected to wait, in the process where that is longest.",
            registry=registry,
            multiprocess_mode="livemax",
        )

    def ended(self, access: RequestRecord) -> None:
        """Count a request."""
        self._requests.labels(access.method, access.code, access.kind).inc()
        self._seconds.labels(access.method).observe(access.seconds)
        if access.reason:
            self._refused.labels(access.reason).inc()
        if not access.timings_ms:
            return
        self._queued.observe(access.queued_s)
        for part, milliseconds in access.timings_ms.items():
            if part in _PARTS:
                self._parts.labels(part).observe(milliseconds / 1e3)
        for level in access.partial:
            self._partial.labels(level).inc()
        if access.model:
            self._tokens.labels("input").inc(access.input_tokens)
            self._tokens.labels("output").inc(access.output_tokens)
        if access.first_text_s is not None:
            self._first_text.observe(access.first_text_s)

    def swapped(self, ok: bool) -> None:
        """Count a snapshot that was taken up, or could not be."""
        self._swaps.labels("ok" if ok else "failed").inc()

    def look(self, admission: LoadShedder, engine: Engine | None) -> None:
        """Take down how full the process is, and what its engine has counted since the last look."""
        rest = admission.present - admission.waiting - admission.retrieving
        states = {
            "waiting": admission.waiting,
            "retrieving": admission.retrieving,
            "answering_or_sending": max(rest, 0),
        }
        for state, value in states.items():
            self._present.labels(state).set(value)
        self._expected.set(admission.expected_wait_s)
        if engine is None:
            return
        before = self._cached if engine is self._looked_at else (0, 0)
        self._looked_at, self._cached = engine, engine.question_cache
        for result, count, seen in zip(("hit", "miss"), self._cached, before, strict=True):
            self._cache.labels(result).inc(count - seen)


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What one process says of itself; times are seconds since 1970, None where there is nothing to say.

    Attributes:
        snapshot: id of the snapshot being served.
        created_at: when it was published.
        loaded_at: when this process took it up.
        certificate_expires: when the service's certificate ends.
        token_expires: when the next of the callers' tokens ends.
        callers: number of callers in the callers file.
        serving: whether it takes questions: health says SERVING.
    """

    snapshot: str = ""
    created_at: float | None = None
    loaded_at: float | None = None
    certificate_expires: float | None = None
    token_expires: float | None = None
    callers: int | None = None
    serving: bool = False

    def write(self, folder: Path, process: int) -> None:
        """Leave it where the metrics are collected."""
        new = folder / f"facts-{process}.new"
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        new.replace(folder / f"facts-{process}.json")


class ProcessFactsCollector:
    """Makes metrics of the facts in a folder.

    Args:
        folder: where processes leave theirs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Yield a family for each kind of fact."""
        read = _read_facts(self._folder)
        serving = sum(each["serving"] for each in read)
        yield GaugeMetricFamily("hirag_service_serving", "Processes that take questions.", value=serving)
        info = GaugeMetricFamily(
            "hirag_snapshot_info", "Processes that serve a snapshot; several ids during a swap.", labels=["snapshot"]
        )
        ids = [each["snapshot"] for each in read if each["snapshot"]]
        for snapshot in sorted(set(ids)):
            info.add_metric([snapshot], ids.count(snapshot))
        yield info
        for name, key, said, choose in (
            (
                "hirag_snapshot_created_timestamp_seconds",
                "created_at",
                "When the oldest one served was published.",
                min,
            ),
            ("hirag_snapshot_loaded_timestamp_seconds", "loaded_at", "When the last process took it up.", max),
            ("hirag_service_certificate_expiry_timestamp_seconds", "certificate_expires", "Of the service's own.", min),
            ("hirag_service_token_expiry_timestamp_seconds", "token_expires", "Of the next token to end.", min),
            ("hirag_service_callers", "callers", "In the callers file, as the process that knows fewest has it.", min),
        ):
            values = [each[key] for each in read if each[key] is not None]
            if values:
                yield GaugeMetricFamily(name, said, value=choose(values))


def any_serving(folder: Path) -> bool:
    """Whether any of the processes that leave their facts in a folder takes questions."""
    return any(each["serving"] for each in _read_facts(folder))


def _read_facts(folder: Path) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = []
    for path in sorted(folder.glob(_FACTS)):
        with contextlib.suppress(OSError, ValueError):  # the process has just gone
            read.append(json.loads(path.read_text(encoding="utf-8")))
    return read


class WorkerMetrics:
    """What the supervisor counts, and how the counts of its workers are added up.

    Args:
        folder: where the workers count.
        n_workers: that should be there.
    """

    def __init__(self, folder: Path, n_workers: int) -> None:
        self._folder = folder
        self.registry = CollectorRegistry()
        _multiprocess.MultiProcessCollector(self.registry, path=str(folder))
        self.registry.register(ProcessFactsCollector(folder))
        Gauge("hirag_service_workers", "Processes configured.", registry=self.registry).set(n_workers)
        self._deaths = Counter("hirag_service_worker_deaths", "Processes that ended unasked.", registry=self.registry)
        self._deaths.inc(0)

    def died(self, place: int, process_id: int) -> None:
        """Count a death, and forget what only a living process can say."""
        self._deaths.inc()
        _multiprocess.mark_process_dead(process_id, path=str(self._folder))
        (self._folder / f"facts-{place}.json").unlink(missing_ok=True)


def process_metrics(folder: Path | None, *, several: bool = False) -> tuple[Metrics, CollectorRegistry | None]:
    """Return the metrics of this process, and what collects them where this is the only one.

    Args:
        folder: where facts are left; None for none.
        several: whether this process is one of several, whose counts the supervisor collects.
    """
    if several:
        return Metrics(None), None
    registry = CollectorRegistry()
    if FOLDER_VARIABLE in os.environ:  # somebody else's: the library counts in files all the same
        _multiprocess.MultiProcessCollector(registry)
        counted = None
    else:
        counted = registry
    if folder is not None:
        registry.register(ProcessFactsCollector(folder))
    return Metrics(counted), registry


def timestamp(text: str) -> float | None:
    """Return the seconds since 1970 of an RFC 3339 time in UTC, None where it is none.

    >>> timestamp("1970-01-01T00:01:00Z")
    60.0
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
