"""Searches for one snapshot in the collection that has its rows, and those of other snapshots."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import VectorsConfig
from hirag_dist.core.access import visible_rows
from hirag_dist.core.retrieval.levels import SLACK, nearest
from hirag_dist.retrieval.question_embedding import MicroBatcher
from hirag_dist.retrieval.vector_index.memory import MemoryVectors
from hirag_dist.retrieval.vector_index.milvus.collection import (
    KEY,
    LITE_FLAT_ROWS,
    SERVER_FLAT_ROWS,
    VECTOR,
    choose_index,
    expression,
    labelled_rows,
    search_params,
)
from hirag_dist.retrieval.vector_index.milvus.connection import TIMEOUT_S, connect, open_lite, shown, translated
from hirag_dist.retrieval.vector_index.milvus.fill import CollectionFill, FilledCollection
from hirag_dist.retrieval.vector_index.milvus.labels import WHOLE_ROWS, LabelledRows, RowFilter
from hirag_dist.retrieval.vector_index.milvus.row_keys import KeyedRows
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import AccessFilter, IntVector

logger = logging.getLogger(__name__)
_MAX_ROWS = 16_384  # of one search, by Milvus
_MAX_JOINED = 64  # questions in one search
_MAX_CONCURRENT = 4  # searches of one process at a server
_MAX_EXACT_ROWS = 65_536  # visible under a filter by metadata, up to which the snapshot's own vectors are scanned
_MARGIN = 1.5  # times as many hits as would be visible if the filter had nothing to do with the question


class _Kind(NamedTuple):
    """Properties that searches in one batch share.

    Attributes:
        n_admitted: rows that pass the filter, or that are visible.
        n_hits: rows that Milvus is asked for at first, where it does not know which are visible; 0 otherwise.
        n_rows: of the layers that are searched.
    """

    limit: int
    filter: str
    n_admitted: int
    n_hits: int = 0
    n_rows: int = 0


class _PendingSearch(NamedTuple):
    vector: NDArray[np.float32]
    kind: _Kind
    access: AccessFilter | None


_Found = tuple[NDArray[np.int64], NDArray[np.float32]]


class MilvusVectors:
    """Implements `protocols.VectorIndex` over an open client.

    Hits are scored again with the snapshot's vectors, so that every backend gives the same numbers in the same order.
    Those of other snapshots that share the collection have unknown keys and are dropped. Searches that arrive while
    others are in progress are sent as one batch.
    """

    def __init__(
        self,
        client: Any,
        snapshot: Snapshot,
        config: VectorsConfig,
        collection: FilledCollection,
        rows: KeyedRows,
        *,
        lite: bool,
        labelled: LabelledRows | None = None,
        max_exact_rows: int = _MAX_EXACT_ROWS,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Take over a client.

        Args:
            collection: complete and loaded.
            rows: keys of the snapshot's rows.
            labelled: where documents carry labels.
            max_exact_rows: visible under a filter by metadata, up to which the snapshot's own vectors are scanned.
            timeout_s: maximum seconds of a search, retries included.

        Raises:
            MilvusException, grpc.RpcError: Milvus does not describe its index.
        """
        self.name = "milvus-lite" if lite else "milvus"
        self._client = client
        self._where = "Milvus Lite" if lite else f"Milvus at {shown(config.uri)}"
        self._collection = collection.name
        self._rows = rows
        self._n_stored = collection.n_rows
        self._slack = SLACK if collection.n_rows == rows.n_distinct else 2 * SLACK
        self._vectors = snapshot.entity_vectors
        self._labelled = labelled
        self._exact = MemoryVectors(snapshot)
        self._max_exact_rows = max_exact_rows
        self._lite = lite
        self._timeout_s = timeout_s
        built = client.describe_index(self._collection, VECTOR)
        self.index = str(built["index_type"]).lower()
        at_a_time = 1 if lite else _MAX_CONCURRENT  # Lite runs in this process, under the same lock
        self._threads = ThreadPoolExecutor(at_a_time, thread_name_prefix="milvus")
        self._batcher = MicroBatcher(self._search, _MAX_JOINED, at_a_time, lambda search: search.kind)

    async def search(
        self,
        vector: NDArray[np.float32],
        limit: int,
        max_layer: int | None = None,
        access: AccessFilter | None = None,
        is_by_row: bool = False,
    ) -> _Found:
        """Return (rows, similarities), best first, ties by row.

        The rows that a caller may see go to Milvus as a filter. Where it would be too long, the snapshot's own vectors
        are searched exactly. Under a filter by metadata few visible rows are searched exactly too; of many, Milvus is
        asked for more than the limit, and those that are not visible are dropped.

        Raises:
            BackendUnavailable: Milvus does not answer within the time-out; until then lost connections are
                made again.
        """
        if access is not None and not access.entity_states.any():
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        n_rows = self._exact.n_rows(max_layer)
        if access is not None and is_by_row:
            kind = self._kind_of_rows(access, n_rows, limit, max_layer)
        else:
            visible: RowFilter | None = RowFilter("" if self._labelled is None else WHOLE_ROWS, len(self._vectors))
            if self._labelled is not None and access is not None:
                visible = self._labelled.filter(access)  # None where it would be too long
            kind = visible and _Kind(
                min(limit, _MAX_ROWS - SLACK), expression(max_layer, visible.text), min(n_rows, visible.n_rows)
            )
        if kind is None:
            return await self._exact.search(vector, limit, max_layer, access)
        return await self._batcher.submit(_PendingSearch(np.asarray(vector, np.float32), kind, access))

    def prepare(self, access: AccessFilter | None = None) -> None:
        """Compile what the exact search needs."""
        self._exact.prepare(access)

    def close(self) -> None:
        """Close the client. This process owns a Lite file until it ends."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    async def _search(self, asked: Sequence[_PendingSearch]) -> list[_Found]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._search_now, asked)

    def _search_now(self, asked: Sequence[_PendingSearch]) -> list[_Found]:
        kind = asked[0].kind
        wanted = min(kind.limit + SLACK, kind.n_admitted)
        n_hits = min(kind.n_hits or kind.limit + self._slack, _MAX_ROWS)
        while True:
            keys = self._hits(asked, n_hits)
            rows = [self._entity_rows(hits, each.access) for each, hits in zip(asked, keys, strict=True)]
            # Rows of other snapshots and several parts of an entity may be among the hits: search wider until there
            # are enough entities.
            short = [len(own) < wanted and len(hits) >= n_hits for own, hits in zip(rows, keys, strict=True)]
            if not any(short) or n_hits == _MAX_ROWS:
                break
            if not kind.n_hits:
                self._slack = 2 * SLACK  # the next searches need no second attempt for few such rows
            n_hits = min(2 * n_hits, _MAX_ROWS)
        if kind.n_hits:  # the filter leaves out nearly all that is near the question
            rows = [
                np.flatnonzero(each.access.entity_states[: kind.n_rows]) if lacking and each.access else own
                for each, own, lacking in zip(asked, rows, short, strict=True)
            ]
        return [
            nearest(self._vectors, candidates, each.vector, kind.limit, each.access)
            for each, candidates in zip(asked, rows, strict=True)
        ]

    def _kind_of_rows(self, access: AccessFilter, n_rows: int, limit: int, max_layer: int | None) -> _Kind | None:
        """Return the kind of a search under a filter by metadata, None where the exact search costs less.

        Args:
            n_rows: rows up to the layer.
        """
        n_admitted = int(np.count_nonzero(access.entity_states[:n_rows]))
        n_hits = int(_MARGIN * (limit + SLACK) * n_rows / max(n_admitted, 1))
        n_hits = 1 << max(n_hits - 1, 1).bit_length()  # so that searches under different filters share a batch
        if n_admitted <= self._max_exact_rows or n_hits > _MAX_ROWS:
            return None
        return _Kind(limit, expression(max_layer), n_admitted, n_hits, n_rows)

    def _entity_rows(self, keys: NDArray[np.int64], access: AccessFilter | None) -> IntVector:
        """Return the distinct entities of the snapshot among hits, as far as the caller may see them."""
        rows = self._rows.rows(keys)
        rows = np.unique(rows) if self._labelled is None else self._labelled.entity_rows(rows)
        return rows if access is None else rows[visible_rows(access, rows)]  # the filter of Milvus is checked again

    def _hits(self, asked: Sequence[_PendingSearch], limit: int) -> list[NDArray[np.int64]]:
        """Return the keys of the rows that Milvus finds for each search."""
        kind = asked[0].kind
        n_rows = self._n_stored
        is_wide = self._lite or kind.n_hits > 0  # the search passes rows that are then left out
        admitted = kind.n_admitted / n_rows if is_wide and n_rows else 1.0
        params = search_params(self.index, limit, n_rows, admitted)
        with translated("search", self._where):
            found = self._client.search(
                self._collection,
                [each.vector for each in asked],
                limit=limit,
                filter=asked[0].kind.filter,
                output_fields=[KEY],
                search_params={"metric_type": "IP", "params": params},
                timeout=self._timeout_s,
            )
        return [np.fromiter((hit[KEY] for hit in hits), np.int64, len(hits)) for hits in found]


def open_milvus_lite(snapshot: Snapshot, config: VectorsConfig, flat_rows: int = LITE_FLAT_ROWS) -> MilvusVectors:
    """Open the Milvus Lite file of a snapshot's index; provide a collection with all its rows, as `open_milvus`.

    Raises:
        BackendUnavailable: no Milvus Lite here, the index is not on a local folder, or another process owns it.
    """
    return _ready(open_lite(snapshot.store), snapshot, flat_rows, config, lite=True, timeout_s=TIMEOUT_S)


def open_milvus(
    snapshot: Snapshot, config: VectorsConfig, flat_rows: int = SERVER_FLAT_ROWS, timeout_s: float = TIMEOUT_S
) -> MilvusVectors:
    """Connect to a Milvus server; provide a collection with all rows of the snapshot.

    Args:
        flat_rows: maximum rows that are scanned rather than indexed.
        timeout_s: maximum seconds of a search, retries included.

    Raises:
        BackendUnavailable: no server answers, it refuses the token, or it cannot hold the collection.
    """
    token = config.token.get_secret_value() if config.token else ""
    client = connect(str(config.uri), token, timeout_s)
    return _ready(client, snapshot, flat_rows, config, lite=False, timeout_s=timeout_s)


def _ready(
    client: Any, snapshot: Snapshot, flat_rows: int, config: VectorsConfig, *, lite: bool, timeout_s: float
) -> MilvusVectors:
    try:
        labelled = labelled_rows(snapshot)
        kind = choose_index(len(snapshot.entity_vectors), flat_rows)
        filling = CollectionFill(client, snapshot, kind, lite, labelled)
        with translated("hold this snapshot", "Milvus Lite" if lite else f"Milvus at {shown(config.uri)}"):
            collection = filling.ensure()
            return MilvusVectors(
                client, snapshot, config, collection, filling.rows, lite=lite, labelled=labelled, timeout_s=timeout_s
            )
    except Exception:
        client.close()
        raise
