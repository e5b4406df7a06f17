"""Hits of communities: how often results held each, added to a file that a later build chooses reports by."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from pathlib import Path

from hirag_dist.errors import ConfigError
from hirag_dist.service.access_log import RequestRecord
from hirag_dist.storage.report_hits import MAX_COMMUNITIES, add_hits

logger = logging.getLogger(__name__)
FLUSHED_S = 60.0


class HitLog:
    """Counts the communities of results, and adds them to a file from time to time.

    The file holds ids and counts only: no question, no caller.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._failed = False  # it was logged

    def count_request(self, record: RequestRecord) -> None:
        """Count the communities of a request that has ended."""
        with self._lock:
            self._counts.update(record.communities)
            if len(self._counts) > 2 * MAX_COMMUNITIES:
                self._counts = Counter(dict(self._counts.most_common(MAX_COMMUNITIES)))

    async def watch(self) -> None:
        """Flush from time to time, until cancelled."""
        while True:
            await asyncio.sleep(FLUSHED_S)
            await asyncio.to_thread(self.flush)

    def flush(self) -> None:
        """Add the counts to the file. What cannot be written is counted on, and logged once."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            add_hits(self._path, counts)
            self._failed = False
        except (OSError, ConfigError) as error:
            with self._lock:
                self._counts.update(counts)
            if not self._failed:
                logger.warning("hits of communities cannot be added to %s: %s", self._path, error)
            self._failed = True
