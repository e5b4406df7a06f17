"""Prometheus metrics of `hirag-dist watch`."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class WatchMetrics:
    """Metrics of one process that follows an input.

    Attributes:
        registry: for `serve_metrics`.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._oldest = Gauge(
            "hirag_watch_oldest_change_seconds",
            "Age of the oldest change of the input that no snapshot has yet; 0 if there is none.",
            registry=self.registry,
        )
        self._pending = Gauge(
            "hirag_watch_pending_files",
            "Files that were added, changed or removed, and that no snapshot has yet.",
            registry=self.registry,
        )
        self._updates = Counter(
            "hirag_watch_updates", "Updates that changed the documents of the index.", registry=self.registry
        )
        self._failures = Counter(
            "hirag_watch_failures", "Listings and updates that failed, and are tried again.", registry=self.registry
        )
        self._debt = Gauge(
            "hirag_watch_debt_tokens",
            "Estimated tokens of summaries and reports that updates have put off.",
            registry=self.registry,
        )
        self._documents = Gauge("hirag_watch_documents", "Documents of the snapshot.", registry=self.registry)

    def follow(self, oldest_s: Callable[[], float], pending: Callable[[], int]) -> None:
        """Set the functions that give the age of the oldest pending change, and the number of pending files."""
        self._oldest.set_function(oldest_s)
        self._pending.set_function(pending)

    def count_update(self) -> None:
        """Count an update."""
        self._updates.inc()

    def show_snapshot(self, n_documents: int, debt_tokens: int) -> None:
        """Show the documents and the debt of the current snapshot."""
        self._documents.set(n_documents)
        self._debt.set(debt_tokens)

    def count_failure(self) -> None:
        """Count a failure."""
        self._failures.inc()
