"""Vector indexes by backend; exact search over the vectors of the snapshot, mapped from its file."""

from __future__ import annotations

import asyncio
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import Config
from hirag_dist.core.retrieval.levels import AT_ONCE, nearest_of_all
from hirag_dist.core.vectors import VectorCodes, few_codes
from hirag_dist.errors import ConfigError
from hirag_dist.protocols import VectorIndex
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import AccessFilter


class MemoryVectors:
    """Implements `protocols.VectorIndex`. Rows are sorted by layer, so a layer limit is a shorter matrix."""

    name = "memory"

    def __init__(self, snapshot: Snapshot) -> None:
        self._vectors = snapshot.entity_vectors
        layers = snapshot.serving.array("entity_layers")
        self._ends = np.cumsum(np.bincount(layers)) if len(layers) else np.zeros(1, np.int64)

    def n_rows(self, max_layer: int | None) -> int:
        """Return the number of rows up to a layer, None for all."""
        return len(self._vectors) if max_layer is None else int(self._ends[min(max_layer, len(self._ends) - 1)])

    @cached_property
    def _codes(self) -> VectorCodes | None:
        """Codes of the vectors, made for the first search."""
        return few_codes(self._vectors)

    async def search(
        self,
        vector: NDArray[np.float32],
        limit: int,
        max_layer: int | None = None,
        access: AccessFilter | None = None,
        is_by_row: bool = False,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return (rows, similarities), best first, ties by row."""
        end = self.n_rows(max_layer)
        search = partial(nearest_of_all, self._vectors, vector, limit, end, access, self._codes)
        return await asyncio.to_thread(search) if end > AT_ONCE else search()

    def prepare(self, access: AccessFilter | None = None) -> None:
        """Compile, or load what was compiled."""
        query = np.zeros(self._vectors.shape[1], np.float32)
        nearest_of_all(self._vectors, query, 1, min(len(self._vectors), 2), access, self._codes)

    def close(self) -> None:
        """Do nothing: mapped files are released with the object."""


def make_vector_index(config: Config, snapshot: Snapshot) -> VectorIndex:
    """Return the vector index over a snapshot's entities.

    Raises:
        BackendUnavailable: the named backend is missing, out of reach, or owned by another process.
        ConfigError: it does not have the configured index, or its address is missing.
    """
    vectors = config.vectors
    if vectors.chosen == "memory":
        return MemoryVectors(snapshot)
    from hirag_dist.retrieval.vector_index.milvus import open_milvus, open_milvus_lite

    if vectors.chosen == "milvus":
        if not vectors.uri:
            raise ConfigError("vectors.backend milvus needs vectors.uri")
        return open_milvus(snapshot, vectors)
    return open_milvus_lite(snapshot, vectors)
