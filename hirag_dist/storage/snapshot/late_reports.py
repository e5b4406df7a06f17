"""Reports that were written after their snapshot was published: a side table, one file a report.

A snapshot is immutable, so a report that a question had written lies in `URI/reports/<snapshot>/`. It is part of the
next snapshot that is built from this one, and is removed with it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from hirag_dist.errors import StoreError
from hirag_dist.schemas import REPORTS
from hirag_dist.storage.layout import LATE_REPORTS
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store

_ENDING: Final = ".json"
_CLAIM: Final = ".claim"
_CLAIM_S: Final = 300.0  # how long a claim on an object store excludes other writers


@dataclass(frozen=True, slots=True)
class LateReport:
    """A report and what it has cost.

    Attributes:
        report: a row of REPORTS.
        usage: rows of `llm.usage.UsageMeter.rows`.
        written_at: seconds since the epoch.
    """

    report: Mapping[str, Any]
    usage: Sequence[Mapping[str, Any]]
    written_at: float

    @property
    def community_id(self) -> str:
        """The community that it is about."""
        return str(self.report["community_id"])


class LateReportFiles:
    """The late reports of one snapshot in the store."""

    def __init__(self, store: Store, snapshot_id: str) -> None:
        self._store = store
        self._folder = late_reports_path(snapshot_id)

    def ids(self) -> set[str]:
        """Return the communities that have a late report, in one listing.

        Raises:
            StoreError: the folder cannot be listed.
        """
        names = self._store.names(self._folder)
        return {name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING)}

    def read(self, community_id: str) -> LateReport | None:
        """Return the late report of a community, None where there is none or its file is damaged."""
        path = self._path(community_id)
        if not self._store.exists(path):
            return None
        try:
            record = self._store.read_json(path)
            row = pa.Table.from_pylist([record["report"]], REPORTS).to_pylist()[0]
            found = LateReport(row, record["usage"], float(record["written_at"]))
        except (StoreError, KeyError, TypeError, ValueError, pa.ArrowException):
            return None
        return found if found.community_id == community_id else None

    def write(self, late: LateReport) -> None:
        """Publish a late report: atomically, and durable when this returns.

        Raises:
            StoreError: it cannot be written.
        """
        record = {"report": dict(late.report), "usage": list(late.usage), "written_at": late.written_at}
        self._store.write_json(self._path(late.community_id), record, compact=True)

    def all(self) -> Iterator[LateReport]:
        """Yield all late reports by id; damaged ones are left out."""
        for own in sorted(self.ids()):
            if (found := self.read(own)) is not None:
                yield found

    @contextmanager
    def claimed(self, community_id: str) -> Iterator[bool]:
        """Yield whether this process alone may write a report, for as long as the block lasts.

        A claim of a process that was killed ends with it in a local folder, and after some minutes on an object store.
        """
        path = f"{self._folder}/{community_id}{_CLAIM}"
        if self._store.local is not None:
            lock = self._store.try_lock(path, create=True)
            try:
                yield lock is not None
            finally:
                if lock is not None:
                    self._store.delete(path)
                    lock.release()
            return
        before = self._store.read_version(path)
        held = None
        if before is None or _claim_ends(before[0]) < time.time():
            data = json.dumps({"until": time.time() + _CLAIM_S}).encode()
            held = self._store.replace(path, data, None if before is None else before[1])
        try:
            yield held is not None
        finally:
            if held is not None:
                self._store.delete(path)

    def _path(self, community_id: str) -> str:
        if not re.fullmatch(r"[\w.-]{1,100}", community_id, re.ASCII):
            raise StoreError(f"{community_id!r} is no id of a community")
        return f"{self._folder}/{community_id}{_ENDING}"


def late_reports_path(snapshot_id: str) -> str:
    """Return the folder of the late reports of a snapshot."""
    return f"{LATE_REPORTS}/{snapshot_id}"


def late_reports(snapshot: Snapshot) -> tuple[LateReport, ...]:
    """Return the late reports of a snapshot by id; none where it misses no report.

    Raises:
        StoreError: the store cannot be read.
    """
    if not snapshot.manifest.missing_reports:
        return ()
    return tuple(LateReportFiles(snapshot.store, snapshot.manifest.snapshot_id).all())


def all_reports(snapshot: Snapshot) -> pa.Table:
    """Return REPORTS of a snapshot with its late reports, sorted by (level, id).

    Raises:
        SnapshotCorrupt: the table cannot be read.
        StoreError: the late reports cannot be read.
    """
    published = snapshot.table("reports")
    late = late_reports(snapshot)
    if not late:
        return published
    known = set(published["community_id"].to_pylist())
    added = [each.report for each in late if each.community_id not in known]
    whole = pa.concat_tables([published.cast(REPORTS), pa.Table.from_pylist(added, REPORTS)])
    return whole.sort_by([("level", "ascending"), ("community_id", "ascending")])


def _claim_ends(data: bytes) -> float:
    try:
        return float(json.loads(data)["until"])
    except (ValueError, KeyError, TypeError):
        return 0.0
