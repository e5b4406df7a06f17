"""Vector indexes by the name of the configured backend."""

from __future__ import annotations

from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError
from hirag_dist.protocols import VectorIndex
from hirag_dist.retrieval.vector_index.memory import MemoryVectors
from hirag_dist.storage.snapshot.reader import Snapshot


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
