"""Filling: a collection gets all rows of a snapshot, once among processes.

Where a predecessor of the snapshot has a collection, only the rows that this lacks are inserted. Otherwise a new
collection is filled and indexed. Either way the alias of the snapshot comes last, so what a killed process leaves is
never mistaken for complete; its rows in a shared collection are found and used by the next attempt.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hirag_dist.errors import BackendUnavailable, HiragError
from hirag_dist.retrieval.vector_index.milvus.claim import Claim
from hirag_dist.retrieval.vector_index.milvus.collection import (
    BEGUN,
    BUILD_PARAMS,
    KEY,
    VECTOR,
    SnapshotRows,
    collection_name,
    count_rows,
    drop,
    drop_alias,
    fields,
    has_snapshot,
    list_keys,
    resolved,
)
from hirag_dist.retrieval.vector_index.milvus.labels import LabelledRows
from hirag_dist.storage.layout import MANIFEST, snapshot_path
from hirag_dist.storage.snapshot.manifest import parse_manifest
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import IntVector

logger = logging.getLogger(__name__)
_PAGE_BYTES = 8 << 20  # of one insert; Milvus takes 64 MiB, many proxies less
_FLUSH_S = 1800.0  # a flush that takes longer fails: Milvus hangs
_POLL_S = 0.25
_MAX_ATTEMPTS = 20  # each may wait for another process: after that the cause is not another process
_MAX_FOREIGN = 0.5  # rows of other snapshots in a shared collection, as a share of the snapshot's own
_MAX_ANCESTORS = 100  # looked at for a collection to share
_LITE_FILLS = threading.Lock()  # a Lite file has one process, which may open a snapshot in several threads


class FilledCollection(NamedTuple):
    """A loaded collection with all rows of a snapshot.

    Attributes:
        name: its own name, not an alias.
        n_rows: of all snapshots that share it.
    """

    name: str
    n_rows: int


@dataclass
class CollectionFill:
    """Provision of a collection with all rows of a snapshot.

    Attributes:
        kind: of the index to build; an existing one is kept.
        lite: whether the client is of a Lite file, which no other process can fill.
        labelled: where documents carry labels.
        now, pause: clock and sleep, in seconds.
        beat_s: seconds between two heartbeats.
    """

    client: Any
    snapshot: Snapshot
    kind: str
    lite: bool
    labelled: LabelledRows | None = None
    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    beat_s: float = 5.0

    def __post_init__(self) -> None:
        self.name = collection_name(self.snapshot.manifest.snapshot_id, self.labelled)
        self.rows = SnapshotRows(self.snapshot, self.labelled)
        self._may_share = True

    def ensure(self) -> FilledCollection:
        """Return the complete and loaded collection; fill it unless another process does.

        Raises:
            BackendUnavailable: Milvus keeps fewer rows than it was sent, or cannot build the index.
            MilvusException, grpc.RpcError: Milvus refuses or is out of reach.
        """
        with _LITE_FILLS if self.lite else nullcontext():
            for attempt in range(_MAX_ATTEMPTS):
                if found := self._complete():
                    return found
                last = attempt == _MAX_ATTEMPTS - 1
                shared = self._shared()
                if shared:
                    self._extend(shared, last)
                else:
                    self._fill(last)
        raise BackendUnavailable(f"Milvus collection {self.name} is not complete after {_MAX_ATTEMPTS} attempts")

    def _complete(self) -> FilledCollection | None:
        """Return the collection that has all rows of the snapshot, None where none has."""
        name = resolved(self.client, self.name)
        if not name:
            return None
        self.client.load_collection(name)
        n_rows = count_rows(self.client, name)
        if n_rows >= self.rows.n_distinct:
            return FilledCollection(name, n_rows)
        logger.warning("Milvus collection %s has %d rows of %d: inserting the others", name, n_rows, self.rows.n)
        return None

    def _shared(self) -> str:
        """Return the collection to extend, "" where a new one is to be filled.

        It is the snapshot's own where rows were lost, else that of the nearest predecessor that has one.
        """
        own = resolved(self.client, self.name)
        if own or not self._may_share:
            return own
        for snapshot_id in self._predecessors():
            name = resolved(self.client, collection_name(snapshot_id, self.labelled))
            if name:
                kind = str(self.client.describe_index(name, VECTOR)["index_type"]).lower()
                return name if kind == self.kind else ""
        return ""

    def _predecessors(self) -> Iterator[str]:
        """Yield the bases of the updates that led to the snapshot, the nearest first."""
        manifest = self.snapshot.manifest
        for _ in range(_MAX_ANCESTORS):
            if manifest.update is None or manifest.update.base is None:
                return
            yield manifest.update.base
            folder = snapshot_path(manifest.update.base)
            try:
                manifest = parse_manifest(self.snapshot.store.read_bytes(f"{folder}/{MANIFEST}"), folder)
            except (HiragError, OSError):  # it was removed
                return

    def _extend(self, name: str, last: bool) -> None:
        """Insert the rows that a collection lacks and name it after the snapshot, unless another process changes it.

        Nothing is flushed at a server: an inserted row is in its log, and a small segment for each update costs more.
        """
        claim = self._claim(f"{name}_extending")
        if not self.lite and not claim.taken(last=last):
            claim.wait()
            return
        with nullcontext() if self.lite else claim.held():
            self.client.load_collection(name)
            keys = list_keys(self.client, name, lite=self.lite)
            missing = self.rows.missing(keys)
            n_foreign = len(keys) - (self.rows.n_distinct - len(missing))
            differs_much = max(len(missing), n_foreign) > _MAX_FOREIGN * self.rows.n
            if resolved(self.client, self.name) != name and differs_much:
                self._may_share = False
                return
            logger.info("inserting %d of %d vectors into Milvus collection %s", len(missing), self.rows.n, name)
            begun = f"{self.name}{BEGUN}"  # finds the rows of a killed attempt when the snapshot is removed
            drop_alias(self.client, begun)
            self.client.create_alias(name, begun)
            for page in self._pages(missing):
                self.client.insert(name, page)
            if self.lite:
                self.client.flush(name, timeout=_FLUSH_S)
            expected = len(keys) + len(np.unique(self.rows.keys[missing]))
            self._check_count(count_rows(self.client, name), expected)
            self._publish(name)
            drop_alias(self.client, begun)

    def _fill(self, last: bool) -> None:
        """Fill a new collection and name it after the snapshot, unless another process does."""
        if self.lite:
            for left in self.client.list_collections():
                if left.startswith(f"{self.name}_rows_") and not has_snapshot(self.client, left):
                    drop(self.client, left)
        own = self._create()
        claim = self._claim(f"{self.name}_filling")
        try:
            if self.lite or claim.taken(own, last=last):
                with nullcontext() if self.lite else claim.held():
                    self._fill_new(own)
                return
        finally:
            if resolved(self.client, self.name) != own:
                drop(self.client, own)
        claim.wait()

    def _fill_new(self, own: str) -> None:
        logger.info("filling Milvus collection %s with %d vectors", self.name, self.rows.n)
        for page in self._pages(np.arange(self.rows.n)):
            self.client.insert(own, page)
        self.client.flush(own, timeout=_FLUSH_S)
        self._index(own)
        self._check_count(int(self.client.get_collection_stats(own)["row_count"]), self.rows.n_distinct)
        self._publish(own)

    def _claim(self, alias: str) -> Claim:
        return Claim(self.client, alias, self.now, self.pause, self.beat_s)

    def _publish(self, name: str) -> None:
        """Name a complete collection after the snapshot, unless another process was first with an equal one."""
        from pymilvus import MilvusException

        try:
            self.client.create_alias(name, self.name)
        except MilvusException:
            if not resolved(self.client, self.name):
                raise

    def _check_count(self, n_rows: int, expected: int) -> None:
        if n_rows < expected:
            raise BackendUnavailable(
                f"Milvus kept {n_rows} of {expected} vectors of {self.name}; look at its logs and its disk"
            )

    def _create(self) -> str:
        """Return the name of a new, empty collection."""
        from pymilvus import DataType

        own = f"{self.name}_rows_{uuid.uuid4().hex[:12]}"
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field(KEY, DataType.INT64, is_primary=True)
        schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=self.snapshot.entity_vectors.shape[1])
        for name, kind in fields(self.labelled).items():
            schema.add_field(name, DataType[kind])
        # The rows of a snapshot are there before its first search, which need not wait for writes. Bounded, not
        # Eventually: a replica that has just come up lags by minutes.
        self.client.create_collection(own, schema=schema, consistency_level="Bounded")
        return own

    def _pages(self, rows: IntVector) -> Iterator[list[dict[str, Any]]]:
        n_rows = max(_PAGE_BYTES // (self.snapshot.entity_vectors.shape[1] * 4 + 64), 1)
        for first in range(0, len(rows), n_rows):
            yield self.rows.records(rows[first : first + n_rows])

    def _index(self, own: str) -> None:
        """Build the index over all rows at once: an index that grows row by row costs more and is worse."""
        params = self.client.prepare_index_params()
        params.add_index(VECTOR, index_type=self.kind.upper(), metric_type="IP", params=dict(BUILD_PARAMS[self.kind]))
        self.client.create_index(own, params, sync=self.lite)
        while not self.lite:
            built = self.client.describe_index(own, VECTOR)
            if built.get("state") == "Finished":
                return
            if built.get("state") == "Failed":
                raise BackendUnavailable(
                    f"Milvus cannot build index {self.kind}: {built.get('index_state_fail_reason', '')}"
                )
            self.pause(_POLL_S)
