"""Collections of rows, which the snapshots of a lineage share: their fields, and the aliases that name snapshots.

A collection holds the rows of a snapshot, and those that its successors have in addition. A row is found by the hash of
its content (`row_keys`) and never changes, so a search for one snapshot drops what it finds of others by its keys
alone. An alias with the name of a snapshot says that a collection has all rows of that snapshot: it is created last,
and only one process can create it.

Services that filter by different fields (those of another version) have a collection each, so that none
drops a collection that another searches.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.vectors import by_row
from hirag_dist.retrieval.vector_index.milvus.labels import PART, PATTERN, LabelledRows
from hirag_dist.retrieval.vector_index.milvus.row_keys import (
    KeyedRows,
    combined_keys,
    hashes_of_texts,
    hashes_of_vectors,
)
from hirag_dist.storage.label_files import read_label_sets
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import IntVector

LITE_FLAT_ROWS = 2_000  # up to so many rows a scan costs no more than a graph search; Lite copies all vectors for it
SERVER_FLAT_ROWS = 20_000
_MIN_EF = 512  # costs a millisecond more than 64, and finds 999 of 1,000 where that finds 930


BUILD_PARAMS: Final[Mapping[str, Mapping[str, int]]] = {  # kind of an index → parameters, by Milvus's names
    "flat": {},
    "hnsw": {"M": 16, "efConstruction": 200},
}


def choose_index(n_rows: int, flat_rows: int) -> str:
    """Return the kind of the index for a collection of so many rows: flat up to a number of rows, hnsw above."""
    return "flat" if n_rows <= flat_rows else "hnsw"


def search_params(kind: str, limit: int, n_rows: int, admitted: float = 1.0) -> dict[str, int]:
    """Return the parameters of a search.

    Args:
        kind: kind of the index; any other than hnsw gets Milvus's own defaults.
        admitted: share of the rows that the filter lets through, for Milvus Lite, and for filters that Milvus does not
            know. Lite walks its graph as if there were no filter and drops what it may not give, so a narrow filter
            needs a wide search; a server searches the few rows of its own filters directly.
    """
    if kind != "hnsw":
        return {}
    usual = min(_MIN_EF, n_rows)
    wide = min(math.ceil(usual / max(admitted, 1 / max(n_rows, 1))), n_rows)
    return {"ef": max(usual, limit, wide)}


logger = logging.getLogger(__name__)
_KEYS = 2**63  # a key is less
_MAX_REPLY_ROWS = 16_384  # by Milvus
_RANGE_ROWS = 10_000  # of keys that are listed by one request, on average
_CONCURRENT_LISTS = 8  # requests: each waits some 200 ms for what was written before it

VECTOR: Final = "vector"
KEY: Final = "row_key"
BEGUN: Final = "_begun"  # ends the alias of a snapshot some of whose rows may be in a collection
_OF_SNAPSHOT = re.compile(r"hirag_([0-9a-f]+)_[0-9a-f]{8}")


def fields(labelled: LabelledRows | None = None) -> dict[str, str]:
    """Return the fields that searches filter by, name → `DataType`: more where documents carry labels.

    Other columns of an entity stay in the snapshot.
    """
    return {"layer": "INT32"} | ({} if labelled is None else {PATTERN: "INT64", PART: "INT64"})


def labelled_rows(snapshot: Snapshot) -> LabelledRows | None:
    """Return the labels of the rows of a snapshot, None where no document carries any."""
    return LabelledRows(snapshot) if any(read_label_sets(snapshot)) else None


class SnapshotRows(KeyedRows):
    """The rows of a snapshot as a collection holds them: its entities, followed by the parts of entities."""

    def __init__(self, snapshot: Snapshot, labelled: LabelledRows | None) -> None:
        """Compute the keys: every vector is read."""
        self.labelled = labelled
        self._vectors = [snapshot.entity_vectors]
        if labelled is not None:
            self._vectors.append(labelled.part_vectors)
        self._ends = np.cumsum([len(vectors) for vectors in self._vectors])
        self.n = int(self._ends[-1])
        layers = snapshot.serving.array("entity_layers")
        hashed = hashes_of_texts(snapshot.table("entities", ["entity_id"])["entity_id"])
        columns: list[NDArray[Any]] = [layers]
        if labelled is not None:
            owners = labelled.owners()
            hashed = hashed[owners]
            layers = np.append(layers, np.zeros(self.n - len(layers), layers.dtype))
            columns = [layers, labelled.patterns(), labelled.parts()]
        self._columns = columns
        vectors = np.concatenate([by_row(part, hashes_of_vectors) for part in self._vectors])
        super().__init__(combined_keys([hashed, vectors, *columns]))

    def records(self, rows: IntVector) -> list[dict[str, Any]]:
        """Return some rows, ascending, as Milvus takes them."""
        names = list(fields(self.labelled))
        split = int(np.searchsorted(rows, self._ends[0]))
        vectors = [np.asarray(self._vectors[0][rows[:split]])]
        if split < len(rows):
            vectors.append(np.asarray(self._vectors[1][rows[split:] - self._ends[0]]))
        values = [column[rows].tolist() for column in self._columns]
        own = zip(self.keys[rows].tolist(), (vector for block in vectors for vector in block), *values, strict=True)
        return [{KEY: key, VECTOR: vector} | dict(zip(names, rest, strict=True)) for key, vector, *rest in own]


def expression(max_layer: int | None = None, visible: str = "") -> str:
    """Return the filter of a search, over `fields`, with that of visible rows (`LabelledRows.filter`); "" for none."""
    parts = [] if max_layer is None else [f"layer <= {max_layer}"]
    return " and ".join([*parts, visible] if visible else parts)


def name_prefix(snapshot_id: str) -> str:
    """Return the prefix of the names of a snapshot, and of the collections that were begun for it."""
    return f"hirag_{snapshot_id}_"


def collection_name(snapshot_id: str, labelled: LabelledRows | None = None) -> str:
    """Return the alias of the collection that has all rows of a snapshot: it ends with 8 hex digits of the fields."""
    content = json.dumps([KEY, fields(labelled)])
    return name_prefix(snapshot_id) + hashlib.sha256(content.encode()).hexdigest()[:8]


def snapshot_of(name: str) -> str | None:
    """Return the snapshot that an alias names, None where it names none.

    >>> snapshot_of("hirag_0a1b_01234567")
    '0a1b'
    """
    found = _OF_SNAPSHOT.fullmatch(name)
    return found[1] if found else None


def has_snapshot(client: Any, name: str) -> bool:
    """Return whether a collection has all rows of any snapshot."""
    return any(map(snapshot_of, aliases(client, name)))


def resolved(client: Any, alias: str) -> str:
    """Return the collection of an alias, "" where there is none."""
    from pymilvus import MilvusException

    try:
        return str(client.describe_alias(alias)["collection_name"])
    except MilvusException:
        return ""


def count_rows(client: Any, name: str) -> int:
    """Return the number of rows of a loaded collection, including those that were inserted just before."""
    found = client.query(name, filter="", output_fields=["count(*)"], consistency_level="Strong")
    return int(found[0]["count(*)"])


def list_keys(client: Any, name: str, *, lite: bool = False) -> NDArray[np.int64]:
    """Return the keys of all rows of a loaded collection, ascending, including those that were inserted just before.

    Keys are hashes, so ranges of equal length have about as many. An iterator of pymilvus misses recent changes.

    Args:
        lite: whether it is in a Lite file, which has no limit of a reply and reads all rows for each.
    """
    n_rows = count_rows(client, name)
    if lite:
        found = client.query(name, filter=f"{KEY} >= 0", limit=n_rows + 1, output_fields=[KEY])
        return np.unique(np.fromiter((row[KEY] for row in found), np.int64, len(found)))
    n_ranges = max(-(-n_rows // _RANGE_ROWS), 1)
    bounds = [_KEYS * at // n_ranges for at in range(n_ranges + 1)]
    with ThreadPoolExecutor(_CONCURRENT_LISTS, thread_name_prefix="milvus-list") as threads:
        pages = list(threads.map(partial(_keys_between, client, name), bounds[:-1], bounds[1:]))
    return np.unique(np.concatenate(pages))


def _keys_between(client: Any, name: str, first: int, end: int) -> NDArray[np.int64]:
    found = client.query(
        name,
        filter=f"{KEY} >= {first} and {KEY} <= {end - 1}",
        limit=_MAX_REPLY_ROWS,
        output_fields=[KEY],
        consistency_level="Strong",
    )
    if len(found) < _MAX_REPLY_ROWS:
        return np.fromiter((row[KEY] for row in found), np.int64, len(found))
    middle = (first + end) // 2
    return np.concatenate([_keys_between(client, name, *part) for part in ((first, middle), (middle, end))])


def drop(client: Any, name: str) -> None:
    """Drop a collection after its aliases, as later versions of Milvus require."""
    for alias in aliases(client, name):
        drop_alias(client, alias)
    client.drop_collection(name)


def aliases(client: Any, name: str) -> list[str]:
    """Return the aliases of a collection; none where it was dropped."""
    from pymilvus import MilvusException

    try:
        return list(client.list_aliases(name)["aliases"])
    except MilvusException:
        return []


def drop_alias(client: Any, alias: str) -> None:
    """Drop an alias if it is there."""
    from pymilvus import MilvusException

    try:
        client.drop_alias(alias)
    except MilvusException:
        logger.debug("alias %s is gone already", alias)
