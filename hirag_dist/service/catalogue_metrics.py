"""Prometheus metrics of a catalogue: requests by index, open indexes, openings and closings."""

from __future__ import annotations

from collections import Counter as Counts

from prometheus_client import CollectorRegistry, Counter, Gauge

from hirag_dist.service.access_log import RequestRecord
from hirag_dist.service.catalogue import IndexCatalogue

MAX_LABELLED = 100  # indexes with a label of their own in a process; the others are counted together
OTHER = "other"


class CatalogueMetrics:
    """Metrics of the catalogue of one process.

    Names of indexes are labels: of the first `MAX_LABELLED` that are asked, the others are counted as `other`. A name
    that is no index, or that its caller may not ask, is counted as `none`.

    Args:
        catalogue: whose counts are sampled.
        registry: None for processes that count in files.
    """

    def __init__(self, catalogue: IndexCatalogue, registry: CollectorRegistry | None) -> None:
        self._catalogue = catalogue
        self._labelled: set[str] = set()
        self._sampled: Counts[str] = Counts()
        self._requests = Counter(
            "hirag_catalogue_requests", "Finished requests, by index and status.", ("index", "code"), registry=registry
        )
        self._seconds = Counter(
            "hirag_catalogue_request_seconds", "Time of finished requests, by index.", ("index",), registry=registry
        )
        self._events = Counter(
            "hirag_catalogue_events",
            "Indexes opened, not opened (failed), and closed: closed_limit, closed_idle, closed_removed and "
            "closed_changed.",
            ("event",),
            registry=registry,
        )
        self._indexes = Gauge(
            "hirag_catalogue_indexes",
            "Indexes of the catalogue (listed) and open ones, in the process with the most.",
            ("state",),
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._listing_failed = Gauge(
            "hirag_catalogue_listing_failed",
            "1 while the indexes cannot be listed: those listed before are served.",
            registry=registry,
            multiprocess_mode="livemax",
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
        counts = self._catalogue.counts
        self._indexes.labels("listed").set(self._catalogue.listed_count)
        self._indexes.labels("open").set(self._catalogue.open_count)
        self._listing_failed.set(counts.listing_failed)
        for event, count in counts.events.items():
            self._events.labels(event).inc(count - self._sampled[event])
        self._sampled = counts.events.copy()
