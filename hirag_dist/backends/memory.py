"""Exact search over the snapshot's own vectors, mapped from its file: several processes share the pages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.retrieval import SLACK, nearest, top_rows
from hirag_dist.index.reader import Snapshot
from hirag_dist.types import FloatMatrix


class MemoryVectors:
    """Implements `ports.VectorIndex`. Rows are sorted by layer, so a layer limit is a shorter matrix."""

    name = "memory"
    waits = False

    def __init__(self, snapshot: Snapshot) -> None:
        self._vectors: FloatMatrix = snapshot.entity_vectors
        layers = snapshot.serving.array("entity_layers")
        self._ends = np.cumsum(np.bincount(layers)) if len(layers) else np.zeros(1, np.int64)

    def search(
        self, vector: NDArray[np.float32], limit: int, max_layer: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return (rows, similarities), best first, ties by row."""
        end = int(self._ends[min(max_layer, len(self._ends) - 1)]) if max_layer is not None else len(self._vectors)
        scores = np.asarray(self._vectors[:end] @ vector, np.float32)
        return nearest(self._vectors, top_rows(scores, np.arange(end), limit + SLACK), vector, limit)

    def close(self) -> None:
        """Nothing to let go of."""
