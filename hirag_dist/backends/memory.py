"""Exact search over the snapshot's own vectors, mapped from its file: several processes share the pages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.admission import mask_scores
from hirag_dist.core.retrieval import SLACK, nearest, top_rows
from hirag_dist.index.reader import Snapshot
from hirag_dist.types import Admission, FloatMatrix


class MemoryVectors:
    """Implements `ports.VectorIndex`. Rows are sorted by layer, so a layer limit is a shorter matrix."""

    name = "memory"

    def __init__(self, snapshot: Snapshot) -> None:
        self._vectors: FloatMatrix = snapshot.entity_vectors
        layers = snapshot.serving.array("entity_layers")
        self._ends = np.cumsum(np.bincount(layers)) if len(layers) else np.zeros(1, np.int64)

    async def search(
        self,
        vector: NDArray[np.float32],
        limit: int,
        max_layer: int | None = None,
        admission: Admission | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return (rows, similarities), best first, ties by row."""
        end = int(self._ends[min(max_layer, len(self._ends) - 1)]) if max_layer is not None else len(self._vectors)
        scores = np.asarray(self._vectors[:end] @ vector, np.float32)
        rows = np.arange(end)
        if admission is not None:
            mask_scores(admission, scores, vector)
            rows = np.flatnonzero(scores > -np.inf)
            scores = scores[rows]
        best = rows[top_rows(scores, rows, limit + SLACK)]
        return nearest(self._vectors, best, vector, limit, admission)

    def close(self) -> None:
        """Nothing to let go of."""
