"""The collection of a snapshot: its fields, how it is filled, and how several processes fill it once.

A collection gets its name, from its snapshot and its fields, only when it is complete. It is filled under another name
and then renamed, which Milvus refuses where the name is taken: a fill that was killed is never mistaken for a
collection, and of two fills that end, both are complete and one is used. A claim keeps a second fill from beginning: an
alias, which only one process can create. Its owner shows heartbeats by changing aliases of its own; a waiting process
takes over from one without heartbeats.

Services that filter by different fields (another tenant prefix, another version) have a collection each, so that none
drops a collection that another searches.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hirag_dist.errors import BackendUnavailable
from hirag_dist.retrieval.vector_index.milvus.index_params import IndexChoice
from hirag_dist.retrieval.vector_index.milvus.labels import PART, PATTERN, TENANT, TENANT_BYTES, LabelledRows
from hirag_dist.storage.snapshot.reader import Snapshot

logger = logging.getLogger(__name__)
_PAGE_BYTES = 8 << 20  # of one insert; Milvus takes 64 MiB, many proxies less
_BEAT_S = 5.0
_DEAD_S = 60.0  # without a beat
_FLUSH_S = 1800.0  # a flush that takes longer fails: Milvus hangs
_POLL_S = 1.0
_MAX_REFUSALS = 20  # of a claim: after that the cause is not another process
_LITE_FILLS = threading.Lock()  # a Lite file has one process, which may open a snapshot in several threads

VECTOR = "vector"
ROW = "row"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the collection in addition to row and vector.

    Attributes:
        name: as filters name it.
        dtype: name of the `DataType`.
        options: of `add_field`, such as max_length or is_partition_key.
    """

    name: str
    dtype: str
    options: dict[str, Any] = field(default_factory=dict)


def fields(labelled: LabelledRows | None = None) -> list[Field]:
    """Return the fields that searches filter by. The other columns of an entity stay in the snapshot.

    Args:
        labelled: where documents carry labels.
    """
    filtered = [Field("layer", "INT32")]
    if labelled is not None:
        filtered += [Field(PATTERN, "INT32"), Field(PART, "INT32")]
        if labelled.has_tenants:
            filtered.append(Field(TENANT, "VARCHAR", {"max_length": TENANT_BYTES, "is_partition_key": True}))
    return filtered


def columns(snapshot: Snapshot, labelled: LabelledRows | None = None) -> list[Sequence[Any]]:
    """Return the values of each of `fields`, for every row of the collection.

    Args:
        snapshot: its entities are the first rows.
        labelled: where documents carry labels: rows of parts follow those of the entities.
    """
    layers = snapshot.serving.array("entity_layers").tolist()
    if labelled is None:
        return [layers]
    values = [layers + [0] * len(labelled.part_vectors), labelled.patterns(), labelled.parts()]
    tenants = labelled.tenants()
    return values if tenants is None else [*values, tenants]


def expression(max_layer: int | None = None, visible: str = "") -> str:
    """Return the filter of a search, over `fields`; "" for none.

    Args:
        max_layer: of the rows to find.
        visible: filter of the rows that the caller may see (`LabelledRows.filter`).
    """
    parts = [] if max_layer is None else [f"layer <= {max_layer}"]
    return " and ".join([*parts, visible] if visible else parts)


def name_prefix(snapshot_id: str) -> str:
    """Return the prefix of the names of a snapshot's collections, including those being filled."""
    return f"hirag_{snapshot_id}_"


def collection_name(snapshot_id: str, labelled: LabelledRows | None = None) -> str:
    """Return the name of a snapshot's collection, which depends on its fields and label numbers."""
    return name_prefix(snapshot_id) + key_of(fields(labelled), "" if labelled is None else labelled.key)


def key_of(collection_fields: Sequence[Field], numbers: str = "") -> str:
    """Return a key of the fields of a collection and of the numbers in them: 8 hex digits."""
    content = json.dumps([[asdict(each) for each in collection_fields], numbers])
    return hashlib.sha256(content.encode()).hexdigest()[:8]


@dataclass
class CollectionFill:
    """Creation of a snapshot's collection, once among processes.

    Attributes:
        client: a `MilvusClient`.
        snapshot: source of the vectors.
        choice: the index to build; an existing one is kept.
        lite: whether the client is of a Lite file, which no other process can fill.
        labelled: where documents carry labels.
        now, pause: clock and sleep, in seconds.
        beat_s: seconds between two heartbeats while it is filled.
    """

    client: Any
    snapshot: Snapshot
    choice: IndexChoice
    lite: bool
    labelled: LabelledRows | None = None
    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    beat_s: float = _BEAT_S

    def __post_init__(self) -> None:
        self.name = collection_name(self.snapshot.manifest.snapshot_id, self.labelled)
        self._fields = fields(self.labelled)
        self._columns = columns(self.snapshot, self.labelled)
        self._vectors = [self.snapshot.entity_vectors]
        if self.labelled is not None:
            self._vectors.append(self.labelled.part_vectors)
        self._n_rows = sum(len(vectors) for vectors in self._vectors)
        self._claim = f"{self.name}_filling"
        self._beat = ""

    def ensure(self) -> None:
        """Return when the collection is complete and loaded; fill it unless another process does.

        Raises:
            MilvusException, grpc.RpcError: Milvus refuses or is out of reach.
        """
        if self.lite:
            with _LITE_FILLS:
                if not self._is_complete():
                    self._clear(self._unfinished())
                    self._fill(self._create())
        else:
            refused = 0
            while not self._is_complete():
                own = self._create()
                if self._claimed(own, last=refused == _MAX_REFUSALS):
                    self._fill(own)
                else:
                    refused += 1
                    self.client.drop_collection(own)
                    self._wait()
        self.client.load_collection(self.name)

    def _is_complete(self) -> bool:
        """Return whether the collection exists and is complete; an incomplete one is dropped."""
        client = self.client
        if not client.has_collection(self.name):
            return False
        rows = int(client.get_collection_stats(self.name)["row_count"])
        if rows == self._n_rows:
            return True
        logger.warning("Milvus collection %s has %d rows of %d: dropped", self.name, rows, self._n_rows)
        self._clear([self.name])
        return False

    def _create(self) -> str:
        """Return the name of a new, empty collection."""
        from pymilvus import DataType

        own = f"{self.name}_fill_{uuid.uuid4().hex[:12]}"
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field(ROW, DataType.INT64, is_primary=True)
        schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=self.snapshot.entity_vectors.shape[1])
        for each in self._fields:
            options = dict(each.options)
            if self.lite:
                options.pop("is_partition_key", None)  # Lite has no partitions
            schema.add_field(each.name, DataType[each.dtype], **options)
        # A snapshot never changes, so a search need not wait for writes. Bounded, not Eventually: a replica that has
        # just come up lags by minutes.
        self.client.create_collection(own, schema=schema, consistency_level="Bounded")
        return own

    def _claimed(self, own: str, last: bool) -> bool:
        """Return whether this process got the claim; with `last`, raise the refusal of Milvus instead."""
        from pymilvus import MilvusException

        try:
            self.client.create_alias(own, self._claim)
        except MilvusException:
            if last:
                self.client.drop_collection(own)
                raise
            return False
        return True

    def _claimant(self) -> str:
        """Return the collection that is being filled, "" where there is none."""
        from pymilvus import MilvusException

        try:
            return str(self.client.describe_alias(self._claim)["collection_name"])
        except MilvusException:
            return ""

    def _wait(self) -> None:
        """Return when no other process fills the collection: it has ended, or has no heartbeat any more."""
        logger.info("another process fills Milvus collection %s: waiting for it", self.name)
        last_sign: object = None
        since = self.now()
        while claimant := self._claimant():
            sign = claimant, *sorted(self._aliases(claimant))
            if sign != last_sign:
                last_sign, since = sign, self.now()
            elif self.now() - since > _DEAD_S:
                logger.warning("the process that filled Milvus collection %s has stopped: filling it again", self.name)
                self._clear([] if claimant == self.name else [claimant])
                self._drop_alias(self._claim)
                return
            self.pause(_POLL_S)

    def _fill(self, own: str) -> None:
        """Fill a claimed collection, and rename it to its final name."""
        from pymilvus import MilvusException

        client = self.client
        logger.info("filling Milvus collection %s with %d vectors", self.name, self._n_rows)
        try:
            with self._beating(own):
                for page in self._pages():
                    client.insert(own, page)
                client.flush(own, timeout=_FLUSH_S)
                self._index(own)
            rows = int(client.get_collection_stats(own)["row_count"])
            if rows != self._n_rows:
                raise BackendUnavailable(
                    f"Milvus kept {rows} of {self._n_rows} vectors of {self.name}; look at its logs and its disk"
                )
            client.rename_collection(own, self.name)
            own = self.name
        except MilvusException:
            if not client.has_collection(self.name):  # another process was first otherwise, with an equal collection
                raise
        finally:
            for alias in [self._claim, self._beat] if own == self.name else self._aliases(own):
                self._drop_alias(alias)
            if own != self.name:
                client.drop_collection(own)

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        names = [each.name for each in self._fields]
        begin = 0
        for vectors in self._vectors:
            n_rows = max(_PAGE_BYTES // (vectors.shape[1] * 4 + 64), 1)
            for first in range(0, len(vectors), n_rows):
                block = np.asarray(vectors[first : first + n_rows])
                at = begin + first
                rest = [column[at : at + len(block)] for column in self._columns]
                yield [
                    {ROW: row, VECTOR: vector} | dict(zip(names, values, strict=True))
                    for row, (vector, *values) in enumerate(zip(block, *rest, strict=True), start=at)
                ]
            begin += len(vectors)

    def _index(self, own: str) -> None:
        """Build the index over all rows at once: an index that grows row by row costs more and is worse."""
        params = self.client.prepare_index_params()
        params.add_index(VECTOR, index_type=self.choice.kind.upper(), metric_type="IP", params=dict(self.choice.build))
        self.client.create_index(own, params, sync=self.lite)
        while not self.lite:
            built = self.client.describe_index(own, VECTOR)
            if built.get("state") == "Finished":
                return
            if built.get("state") == "Failed":
                raise BackendUnavailable(
                    f"Milvus cannot build index {self.choice.kind}: {built.get('index_state_fail_reason', '')}"
                )
            self.pause(_POLL_S / 4)

    @contextmanager
    def _beating(self, own: str) -> Iterator[None]:
        """Show heartbeats to waiting processes from a thread: one flush of Milvus may take minutes."""
        if self.lite:
            yield
            return
        ended = threading.Event()
        beats = threading.Thread(target=self._beat_until, args=(ended, own), name="milvus-beat", daemon=True)
        beats.start()
        try:
            yield
        finally:
            ended.set()
            beats.join()

    def _beat_until(self, ended: threading.Event, own: str) -> None:
        import grpc
        from pymilvus import MilvusException

        while not ended.wait(self.beat_s):
            before, beat = self._beat, f"{own}_{uuid.uuid4().hex[:8]}"
            try:
                self.client.create_alias(own, beat)
            except (MilvusException, grpc.RpcError) as error:  # the fill reports the error if it is affected
                logger.debug("no heartbeat for %s: %s", own, error)
                continue
            self._beat = beat
            if before:
                self._drop_alias(before)

    def _unfinished(self) -> list[str]:
        return [name for name in self.client.list_collections() if name.startswith(f"{self.name}_fill_")]

    def _clear(self, names: Sequence[str]) -> None:
        for name in names:
            drop(self.client, name)

    def _aliases(self, name: str) -> list[str]:
        return _aliases(self.client, name)

    def _drop_alias(self, alias: str) -> None:
        _drop_alias(self.client, alias)


def drop(client: Any, name: str) -> None:
    """Drop a collection after its aliases, as later versions of Milvus require."""
    for alias in _aliases(client, name):
        _drop_alias(client, alias)
    client.drop_collection(name)


def _aliases(client: Any, name: str) -> list[str]:
    from pymilvus import MilvusException

    try:
        return list(client.list_aliases(name)["aliases"])
    except MilvusException:  # it was dropped
        return []


def _drop_alias(client: Any, alias: str) -> None:
    from pymilvus import MilvusException

    try:
        client.drop_alias(alias)
    except MilvusException:
        logger.debug("alias %s is gone already", alias)
