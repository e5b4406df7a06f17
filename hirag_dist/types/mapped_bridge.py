"""Key entities and paths of a retrieval as rows of mapped columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.types.arrays import IntVector
from hirag_dist.types.results import Retrieval


@dataclass(frozen=True, slots=True)
class MappedTexts:
    """Columns of texts of one mapped file, some rows of which are replaced.

    A row that is replaced has a negative number: −1 the first one, −2 the second.

    Attributes:
        data: bytes of the mapped file.
        places: (4, n_batches, 2) where the offsets and the bytes of each column's batches begin.
        widths: (4,) bytes of an offset of each column: 4 or 8.
        batch_rows: rows of a batch; the last one may have fewer.
        replaced: bytes of the texts of the replaced rows.
        replaced_places: (n_replaced, 4, 2) where each of these begins and ends.
    """

    data: NDArray[np.uint8]
    places: NDArray[np.int64]
    widths: NDArray[np.int64]
    batch_rows: int
    replaced: NDArray[np.uint8]
    replaced_places: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MappedBridge:
    """Contents of `Retrieval.key_entities` and `Retrieval.paths`, without an object for each item.

    Attributes:
        texts: ids, names, types and descriptions of entities; rows of this class are numbered as there.
        layers: (n_keys,) of the key entities.
        keys: (n_keys,) rows of the key entities.
        scores: (n_keys,) their similarities.
        path_ends: (n_keys - 1,) where the nodes of each path end.
        nodes: rows of all paths, one path after another; none of an unconnected pair.
    """

    texts: MappedTexts
    layers: NDArray[np.int32]
    keys: IntVector
    scores: NDArray[np.float64]
    path_ends: IntVector
    nodes: IntVector


@dataclass(frozen=True, slots=True)
class EncodableRetrieval:
    """A retrieval for a reply over the wire.

    Attributes:
        retrieval: without key entities and paths where `bridge` has them.
        bridge: None where the retrieval is whole.
    """

    retrieval: Retrieval
    bridge: MappedBridge | None = None

    @property
    def n_encoded(self) -> int:
        """Number of key entities that are rows."""
        return 0 if self.bridge is None else len(self.bridge.keys)
