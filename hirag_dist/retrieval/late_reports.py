"""Late reports of a snapshot as questions read them: listed from time to time, read once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from hirag_dist.core.reports.material import report_text
from hirag_dist.core.retrieval.levels import RankedCommunity
from hirag_dist.errors import StoreError
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.storage.snapshot.late_reports import LateReport, LateReportFiles
from hirag_dist.types import CommunityItem

logger = logging.getLogger(__name__)
_LISTED_S = 10.0  # how old the list of reports that other processes have written may be
_MAX_CACHED = 4096  # reports


class ReportWriter(Protocol):
    """Writes missing reports of one snapshot, each once."""

    async def write(self, index: MappedIndex, row: int, caller: str) -> LateReport | str:
        """Return the report of a community, or why it is not written.

        A report in progress is finished and stored even if the wait for it is cancelled.

        Args:
            index: unfiltered.
            row: of the community.
            caller: whose budget pays.
        """
        ...

    async def close(self) -> None:
        """Finish the reports in progress, and release what is open."""
        ...


class LateReports:
    """The late reports of one snapshot, for the questions of one event loop."""

    def __init__(self, files: LateReportFiles, clock: Callable[[], float] = time.monotonic) -> None:
        """List them.

        Raises:
            StoreError: the store cannot be read.
        """
        self._files = files
        self._clock = clock
        self._known = files.ids()
        self._listed_at = clock()
        self._listing: asyncio.Task[None] | None = None
        self._read: dict[str, LateReport] = {}

    async def load(self, community_ids: Iterable[str]) -> None:
        """Read the late reports of some communities that lack a report, as far as they are known to exist."""
        wanted = list(community_ids)
        if wanted and self._clock() - self._listed_at >= _LISTED_S and self._listing is None:
            self._listing = asyncio.create_task(self._list())  # this question does not wait for it
        unread = [own for own in wanted if own in self._known and own not in self._read]
        if unread:
            for late in await asyncio.to_thread(lambda: list(map(self._files.read, unread))):
                if late is not None:
                    self.add(late)

    def add(self, late: LateReport) -> None:
        """Add a report that was just written."""
        self._known.add(late.community_id)
        self._read[late.community_id] = late
        while len(self._read) > _MAX_CACHED:
            del self._read[next(iter(self._read))]

    def item(self, index: MappedIndex, ranked: RankedCommunity, community_id: str) -> CommunityItem | None:
        """Return a community with its late report; None without one, or where not all its sources are visible."""
        late = self._read.get(community_id)
        if late is None or not index.is_fully_visible(ranked.community):
            return None
        return with_report(
            CommunityItem(
                community_id,
                int(index.communities.levels[ranked.community]),
                "",
                "",
                0.0,
                ranked.hits,
                ranked.score,
            ),
            late,
        )

    async def close(self) -> None:
        """End a listing in progress."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.gather(self._listing, return_exceptions=True)

    async def _list(self) -> None:
        try:
            self._known = self._known | await asyncio.to_thread(self._files.ids)
        except StoreError as error:
            logger.warning("the reports written since cannot be listed: %s", error)
        finally:
            self._listed_at = self._clock()
            self._listing = None


def with_report(item: CommunityItem, late: LateReport) -> CommunityItem:
    """Return a community of a result with its late report."""
    row = late.report
    return CommunityItem(
        item.community_id, item.level, row["title"], report_text(dict(row)), row["rating"], item.hits, item.score
    )
