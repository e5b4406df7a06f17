"""Searches in the collection of one snapshot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.backends.milvus.collection import ROW, VECTOR, Filling, collection_name, expression
from hirag_dist.backends.milvus.connection import connect, open_lite, translated
from hirag_dist.backends.milvus.indexes import choose_index, search_params
from hirag_dist.config import Vectors
from hirag_dist.core.scoring import SLACK, nearest
from hirag_dist.index.reader import Snapshot
from hirag_dist.joining import Joined

log = logging.getLogger(__name__)
_MOST_ROWS = 16_384  # of one search, by Milvus
_MOST_JOINED = 64  # questions in one search
_AT_A_TIME = 4  # searches that one process has under way at a server


class _Kind(NamedTuple):
    limit: int
    filter: str


class _Asked(NamedTuple):
    vector: NDArray[np.float32]
    kind: _Kind


_Found = tuple[NDArray[np.int64], NDArray[np.float32]]


class MilvusVectors:
    """Implements `ports.VectorIndex` over an open client.

    Found rows are scored again with the snapshot's vectors, so that every backend gives the same numbers in the same
    order. Searches that come while others are under way go together.
    """

    def __init__(self, client: Any, snapshot: Snapshot, config: Vectors, *, lite: bool) -> None:
        """Take over a client whose collection is whole and loaded.

        Raises:
            MilvusException, grpc.RpcError: Milvus does not tell of its index.
        """
        self.name = "milvus-lite" if lite else "milvus"
        self._client = client
        self._where = "Milvus Lite" if lite else f"Milvus at {config.uri}"
        self._collection = collection_name(snapshot.manifest.snapshot_id)
        self._vectors = snapshot.entity_vectors
        self._timeout_s = config.timeout_s
        self._breadth = config.search_breadth
        built = client.describe_index(self._collection, VECTOR)
        self.index = str(built["index_type"]).lower()
        self._n_lists = int(built["nlist"]) if "nlist" in built else None
        at_a_time = 1 if lite else _AT_A_TIME  # Lite runs in this process, under the same lock
        self._threads = ThreadPoolExecutor(at_a_time, thread_name_prefix="milvus")
        self._joined = Joined(self._search, _MOST_JOINED, at_a_time, lambda asked: asked.kind)

    async def search(self, vector: NDArray[np.float32], limit: int, max_layer: int | None = None) -> _Found:
        """Return (rows, similarities), best first, ties by row.

        Raises:
            BackendUnavailable: Milvus does not answer within `vectors.timeout_s`; until then lost connections are made
                again.
        """
        kind = _Kind(min(limit, _MOST_ROWS - SLACK), expression(max_layer))
        return await self._joined.ask(_Asked(np.asarray(vector, np.float32), kind))

    def point_alias(self, alias: str) -> None:
        """Let an alias name the collection, for people: searches go by the collection's own name, whatever it says.

        Nothing depends on it, so what goes wrong is logged and no more.
        """
        from pymilvus import MilvusException

        try:
            try:
                self._client.alter_alias(self._collection, alias)
            except MilvusException:  # there is none yet
                self._client.create_alias(self._collection, alias)
        except MilvusException as error:
            log.warning("alias %s does not name %s: %s", alias, self._collection, error.message)

    def drop(self) -> None:
        """Drop the collection; opening the snapshot again fills it anew. Raises BackendUnavailable."""
        with translated(f"drop {self._collection}", self._where):
            self._client.drop_collection(self._collection)

    def close(self) -> None:
        """Let go of the client. A Lite file stays this process's own until it ends."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    async def _search(self, asked: Sequence[_Asked]) -> list[_Found]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._search_now, asked)

    def _search_now(self, asked: Sequence[_Asked]) -> list[_Found]:
        kind = asked[0].kind
        wanted = kind.limit + SLACK
        params = search_params(self.index, self._breadth, wanted, len(self._vectors), self._n_lists)
        with translated("search", self._where):
            found = self._client.search(
                self._collection,
                [each.vector for each in asked],
                limit=wanted,
                filter=kind.filter,
                output_fields=[ROW],
                search_params={"metric_type": "IP", "params": params},
                timeout=self._timeout_s,
            )
        rows = [np.fromiter((hit[ROW] for hit in hits), np.int64, len(hits)) for hits in found]
        return [
            nearest(self._vectors, candidates, each.vector, kind.limit)
            for each, candidates in zip(asked, rows, strict=True)
        ]


def open_milvus_lite(snapshot: Snapshot, config: Vectors) -> MilvusVectors:
    """Open the Milvus Lite file beside a snapshot's index, building its collection where it is missing or short.

    Raises:
        BackendUnavailable: no Milvus Lite here, the index is not on a local folder, or another process owns it.
        ConfigError: Milvus Lite does not have the configured index.
    """
    choice = choose_index(config.index, config.index_params, len(snapshot.entity_vectors), lite=True)
    client = open_lite(snapshot)
    return _ready(client, Filling(client, snapshot, choice, lite=True), config)


def open_milvus(snapshot: Snapshot, config: Vectors) -> MilvusVectors:
    """Connect to a Milvus server, building the snapshot's collection where it is missing or short.

    Raises:
        BackendUnavailable: no server answers, it refuses the token, or it cannot hold the collection.
        ConfigError: the index has no such parameter.
    """
    choice = choose_index(config.index, config.index_params, len(snapshot.entity_vectors), lite=False)
    token = config.token.get_secret_value() if config.token else ""
    client = connect(str(config.uri), token, config.timeout_s)
    return _ready(client, Filling(client, snapshot, choice, lite=False), config)


def _ready(client: Any, filling: Filling, config: Vectors) -> MilvusVectors:
    snapshot = filling.snapshot
    try:
        with translated("hold this snapshot", "Milvus Lite" if filling.lite else f"Milvus at {config.uri}"):
            filling.ensure()
            ready = MilvusVectors(client, snapshot, config, lite=filling.lite)
    except Exception:
        client.close()
        raise
    if filling.choice.named and ready.index != filling.choice.kind:
        log.warning(
            "Milvus collection %s has index %s, and vectors.index is %s: drop the collection to have it built anew",
            filling.name,
            ready.index,
            filling.choice.kind,
        )
    return ready
