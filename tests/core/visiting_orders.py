"""Orders in which Leiden visits the nodes of test graphs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.graph.leiden import visiting_keys


def order_keys(n_nodes: int, seed: int) -> NDArray[np.uint64]:
    """Return the keys of nodes whose ids are their numbers."""
    return visiting_keys(pa.chunked_array([pa.array(range(n_nodes), pa.int64())]), seed)
