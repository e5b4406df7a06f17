"""Prometheus metrics of the service, of one process or of several together.

A process counts in memory; if PROMETHEUS_MULTIPROC_DIR names a folder, in files there whose counts the supervisor adds
up.
"""

from __future__ import annotations

import math
from collections import Counter as Counts
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, multiprocess

from hirag_dist.service.access_log import RequestRecord
from hirag_dist.service.catalogue import IndexCatalogue
from hirag_dist.service.request_gate import LoadShedder

if TYPE_CHECKING:
    from hirag_dist.retrieval.engine import QueryEngine

_multiprocess: Any = multiprocess  # it has no types
MAX_LABELLED = 100  # indexes with a label of their own in a process; the others are counted together
OTHER = "other"

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_REQUEST_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_PART_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
_PARTS = frozenset({"embed", "search", "communities", "bridge", "sources", "render", "total"})


class Metrics:
    """Metrics of one process. Labels have few values, none of which comes from callers.

    Args:
        registry: None for processes that count in files.
    """

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.registry = registry
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._requests = counter(
            "hirag_service_requests",
            "Finished requests, by method, status and kind of authentication.",
            ("method", "code", "caller"),
        )
        self._seconds = histogram(
            "hirag_service_request_seconds",
            "Time from a request's arrival to its end.",
            ("method",),
            buckets=_REQUEST_S,
        )
        self._queued = histogram(
            "hirag_service_queue_seconds", "Time that retrievals waited in the queue.", buckets=_PART_S
        )
        self._refused = counter(
            "hirag_service_refused",
            "Rejected requests: queue, deadline, full and answers by load shedding; rate, quota and concurrent by the "
            "caller's quotas; *_token and *_certificate by authentication; slow_reader for dropped streams.",
            ("reason",),
        )
        self._parts = histogram(
            "hirag_retrieval_part_seconds", "Time of the parts of retrievals, and in total.", ("part",), buckets=_PART_S
        )
        self._partial = counter("hirag_retrieval_partial", "Levels that a deadline cut off.", ("level",))
        self._tokens = counter("hirag_answer_tokens", "Input and output tokens of answers.", ("kind",))
        self._first_text = histogram(
            "hirag_answer_first_text_seconds",
            "Time from an Answer's arrival to the first piece of text.",
            buckets=_REQUEST_S,
        )
        self._swaps = counter(
            "hirag_snapshot_swaps",
            "Hot swaps to a new snapshot, and failures to swap or to determine the current one.",
            ("outcome",),
        )
        self._cache = counter(
            "hirag_question_cache", "Questions whose vector was in the cache (hit) or not (miss).", ("result",)
        )
        # Prometheus sees no increase in a first sample, so counters on which an alert is set begin with a zero
        for outcome in ("ok", "failed"):
            self._swaps.labels(outcome).inc(0)
        for reason in ("queue", "deadline", "full", "answers"):
            self._refused.labels(reason).inc(0)
        self._snapshot = ""
        self._snapshot_info = gauge(
            "hirag_snapshot_info",
            "Processes that serve a snapshot; several ids during a swap, 0 for a former one.",
            ("snapshot",),
            multiprocess_mode="livesum",
        )
        self._facts: dict[str, Gauge] = {}
        self._sampled_engine: QueryEngine | None = None
        self._cached = (0, 0)
        self._present = gauge(
            "hirag_service_requests_in_flight",
            "Requests in progress: waiting, retrieving, answering or sending.",
            ("state",),
            multiprocess_mode="livesum",
        )
        self._expected = gauge(
            "hirag_service_expected_wait_seconds",
            "Expected wait of a new retrieval, in the process where it is longest.",
            multiprocess_mode="livemax",
        )

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

    def describe(self, snapshot: str, facts: Mapping[str, float | None]) -> None:
        """Set the gauges of this process. A fact that it never had has no gauge.

        Args:
            snapshot: id of the snapshot being served; empty for none.
            facts: values by the keys of `FACTS`; times are seconds since 1970, None if there is none.
        """
        if snapshot != self._snapshot:
            if self._snapshot:
                self._snapshot_info.labels(self._snapshot).set(0)
            self._snapshot_info.labels(snapshot).set(1)
            self._snapshot = snapshot
        for fact, value in facts.items():
            name, text, mode = FACTS[fact]
            if value is not None and fact not in self._facts:
                self._facts[fact] = Gauge(name, text, registry=self.registry, multiprocess_mode=mode)
            if fact in self._facts:
                self._facts[fact].set(math.inf if value is None else value)

    def sample(self, shedder: LoadShedder, engine: QueryEngine | None) -> None:
        """Set the gauges of the load, and add the engine's counts since the last sample."""
        rest = shedder.present - shedder.waiting - shedder.retrieving
        self._present.labels("waiting").set(shedder.waiting)
        self._present.labels("retrieving").set(shedder.retrieving)
        self._present.labels("answering_or_sending").set(max(rest, 0))
        self._expected.set(shedder.expected_wait_s)
        if engine is None:
            return
        before = self._cached if engine is self._sampled_engine else (0, 0)
        self._sampled_engine, self._cached = engine, engine.question_cache
        for result, count, sampled in zip(("hit", "miss"), self._cached, before, strict=True):
            self._cache.labels(result).inc(count - sampled)


_Mode: TypeAlias = Literal["livesum", "livemin", "livemax"]
FACTS: dict[str, tuple[str, str, _Mode]] = {  # fact → metric, help, value of several processes
    "created_at": (
        "hirag_snapshot_created_timestamp_seconds",
        "Publication of the oldest snapshot being served.",
        "livemin",
    ),
    "loaded_at": (
        "hirag_snapshot_loaded_timestamp_seconds",
        "Time when the last process loaded its snapshot.",
        "livemax",
    ),
    "token_expires": (
        "hirag_service_token_expiry_timestamp_seconds",
        "Expiry of the token that ends next; +Inf if none ends.",
        "livemin",
    ),
    "callers": (
        "hirag_service_callers",
        "Callers in the callers file; the lowest count of all processes.",
        "livemin",
    ),
    "callers_failed": (
        "hirag_service_callers_file_failed",
        "1 while the callers file is missing, empty or wrong: former callers, or none, are valid.",
        "livemax",
    ),
    "serving": ("hirag_service_serving", "Processes that accept requests.", "livesum"),
}


class WorkerMetrics:
    """Metrics of the supervisor, with the sums of its workers' metrics."""

    def __init__(self, folder: Path, n_workers: int) -> None:
        self._folder = folder
        self.registry = CollectorRegistry()
        _multiprocess.MultiProcessCollector(self.registry, path=str(folder))
        Gauge("hirag_service_workers", "Processes configured.", registry=self.registry).set(n_workers)
        self._deaths = Counter(
            "hirag_service_worker_deaths", "Worker processes that ended unexpectedly.", registry=self.registry
        )
        self._deaths.inc(0)

    def count_death(self, process_id: int) -> None:
        """Count a death, and remove the gauges of the dead process."""
        self._deaths.inc()
        _multiprocess.mark_process_dead(process_id, path=str(self._folder))


def timestamp(text: str) -> float | None:
    """Return the seconds since 1970 of an RFC 3339 time in UTC, None if it is none.

    >>> timestamp("1970-01-01T00:01:00Z")
    60.0
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


class CatalogueMetrics:
    """Metrics of the catalogue of one process.

    Names of indexes are labels: of the first `MAX_LABELLED` that are asked, the others are counted as `other`. A name
    that is no index, or that its caller may not ask, is counted as `none`.
    """

    def __init__(self, catalogue: IndexCatalogue, registry: CollectorRegistry | None) -> None:
        self._catalogue = catalogue
        self._labelled: set[str] = set()
        self._sampled: Counts[str] = Counts()
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livemax")
        self._requests = counter(
            "hirag_catalogue_requests", "Finished requests, by index and status.", ("index", "code")
        )
        self._seconds = counter("hirag_catalogue_request_seconds", "Time of finished requests, by index.", ("index",))
        self._events = counter(
            "hirag_catalogue_events",
            "Indexes opened, not opened (failed), and closed: closed_limit, closed_idle, closed_removed and "
            "closed_changed.",
            ("event",),
        )
        self._indexes = gauge(
            "hirag_catalogue_indexes",
            "Indexes of the catalogue (listed) and open ones, in the process with the most.",
            ("state",),
        )
        self._listing_failed = gauge(
            "hirag_catalogue_listing_failed", "1 while the indexes cannot be listed: those listed before are served."
        )

    def count_request(self, record: RequestRecord) -> None:
        """Count a finished request."""
        name = record.index or "none"
        if record.index and name not in self._labelled:
            if len(self._labelled) < MAX_LABELLED:
                self._labelled.add(name)
            else:
                name = OTHER
        self._requests.labels(name, record.code).inc()
        self._seconds.labels(name).inc(record.seconds)

    def sample(self) -> None:
        """Set the gauges, and add the events since the last sample."""
        events = self._catalogue.events
        self._indexes.labels("listed").set(self._catalogue.listed_count)
        self._indexes.labels("open").set(self._catalogue.open_count)
        self._listing_failed.set(self._catalogue.listing_failed)
        for event, count in events.items():
            self._events.labels(event).inc(count - self._sampled[event])
        self._sampled = events.copy()
