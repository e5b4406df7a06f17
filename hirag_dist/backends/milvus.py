"""Entity vectors in Milvus: Lite, whose file one process owns, or a server. The snapshot can always rebuild them.

A collection is named after its snapshot and holds row, layer and vector; names and texts stay in the snapshot.
Found rows are scored again with the snapshot's vectors, so that every backend gives the same numbers in the same
order.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.scoring import SLACK, nearest
from hirag_dist.errors import BackendUnavailable
from hirag_dist.index.reader import Snapshot

log = logging.getLogger(__name__)
_BATCH_ROWS = 2000


class MilvusVectors:
    """Implements `ports.VectorIndex` over an open client."""

    waits = True

    def __init__(self, client: Any, snapshot: Snapshot, name: str) -> None:
        self.name = name
        self._client = client
        self._collection = collection_name(snapshot.manifest.snapshot_id)
        self._vectors = snapshot.entity_vectors

    def search(
        self, vector: NDArray[np.float32], limit: int, max_layer: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return (rows, similarities), best first, ties by row.

        Raises:
            BackendUnavailable: Milvus does not answer.
        """
        from pymilvus import MilvusException

        try:
            hits = self._client.search(
                self._collection,
                [np.asarray(vector, np.float32)],
                limit=min(limit + SLACK, 16_384),
                filter="" if max_layer is None else f"layer <= {max_layer}",
                output_fields=["row"],
                search_params={"metric_type": "IP"},
            )[0]
        except MilvusException as error:
            raise BackendUnavailable(f"Milvus does not search: {error.message}") from error
        rows = np.fromiter((hit["row"] for hit in hits), np.int64, len(hits))
        return nearest(self._vectors, rows, np.asarray(vector, np.float32), limit)

    def close(self) -> None:
        """Close the client; a Lite file is then free for another process."""
        self._client.close()


def collection_name(snapshot_id: str) -> str:
    """Return the collection of a snapshot."""
    return f"hirag_{snapshot_id}"


def open_milvus_lite(snapshot: Snapshot) -> MilvusVectors:
    """Open the Milvus Lite file beside a snapshot's index, building its collection where it is missing or short.

    Raises:
        BackendUnavailable: no Milvus Lite here, the index is not on a local folder, or another process owns it.
    """
    root = snapshot.store.local
    if root is None:
        raise BackendUnavailable("Milvus Lite needs an index on a local folder; use a Milvus server, or memory")
    try:
        import milvus_lite  # noqa: F401
        from pymilvus import MilvusClient, MilvusException
    except ImportError as error:
        raise BackendUnavailable("Milvus Lite needs `pip install milvus-lite`") from error
    for name in ("milvus_lite", "grpc._server"):  # they log tracebacks for a lock that is taken, a call it lacks
        logging.getLogger(name).setLevel(logging.CRITICAL)
    folder = Path(root) / "milvus"
    try:
        folder.mkdir(exist_ok=True)
        client = MilvusClient(str(folder / "milvus.db"))
    except OSError as error:
        raise BackendUnavailable(f"Milvus Lite cannot write to {folder}: {error.strerror}") from error
    except MilvusException as error:
        raise BackendUnavailable(
            f"another process owns the Milvus Lite file of {snapshot.store.uri}; ask that service with "
            "`query --server`, or set vectors.backend to memory"
        ) from error
    return _ready(client, snapshot, "milvus-lite")


def open_milvus(uri: str, token: str, snapshot: Snapshot) -> MilvusVectors:
    """Connect to a Milvus server, building the snapshot's collection where it is missing or short.

    Raises:
        BackendUnavailable: no server answers, or it refuses the token.
    """
    return _ready(_connect(uri, token), snapshot, "milvus")


def server_version(uri: str, token: str) -> str:
    """Return the version of a Milvus server. Raises BackendUnavailable where none answers."""
    client = _connect(uri, token)
    try:
        return f"{client.get_server_version()} at {uri}"
    finally:
        client.close()


def _connect(uri: str, token: str) -> Any:
    try:
        from pymilvus import MilvusClient, MilvusException
    except ImportError as error:
        raise BackendUnavailable("a Milvus server needs `pip install pymilvus`") from error
    try:
        return MilvusClient(uri, token=token, timeout=10)
    except MilvusException as error:
        raise BackendUnavailable(f"no Milvus answers at {uri}: {error.message}") from error


def _ready(client: Any, snapshot: Snapshot, name: str) -> MilvusVectors:
    from pymilvus import MilvusException

    try:
        _fill(client, snapshot)
    except MilvusException as error:
        client.close()
        raise BackendUnavailable(f"Milvus cannot hold this snapshot: {error.message}") from error
    return MilvusVectors(client, snapshot, name)


def _fill(client: Any, snapshot: Snapshot) -> None:
    collection = collection_name(snapshot.manifest.snapshot_id)
    vectors = snapshot.entity_vectors
    if client.has_collection(collection):
        if int(client.get_collection_stats(collection)["row_count"]) == len(vectors):
            client.load_collection(collection)
            return
        client.drop_collection(collection)  # half filled by a process that was killed
    from pymilvus import DataType

    log.info("filling Milvus collection %s with %d vectors", collection, len(vectors))
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("layer", DataType.INT32)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=vectors.shape[1])
    index = client.prepare_index_params()
    index.add_index("vector", index_type="FLAT", metric_type="IP")
    client.create_collection(collection, schema=schema, index_params=index, consistency_level="Strong")
    layers = snapshot.table("entities")["layer"].to_pylist()
    for first in range(0, len(vectors), _BATCH_ROWS):
        block = np.asarray(vectors[first : first + _BATCH_ROWS])
        rows = [{"row": first + at, "layer": layers[first + at], "vector": vector} for at, vector in enumerate(block)]
        client.insert(collection, rows)
    client.flush(collection)
    client.load_collection(collection)
