"""The snapshot that an update starts from, or nothing, from which a build does."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist import schemas
from hirag_dist.config.model import MEMBER_CHARS, Config
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.key_sets import KeySets
from hirag_dist.core.row_changes import ChangedRows, changed_rows, rows_between, rows_of_table
from hirag_dist.errors import ConfigError, HiragError, SnapshotCorrupt, SnapshotError, SnapshotNotFound
from hirag_dist.execution.dataset import Dataset, DatasetPart, DatasetStore
from hirag_dist.indexing.stages.embed import vector_blocks, vector_rows
from hirag_dist.indexing.stages.resolve import ProposePairs
from hirag_dist.schemas import ENTITIES
from hirag_dist.storage.layout import CHANGED, MENTIONS, REPORT_INPUTS, SUMMARIES
from hirag_dist.storage.snapshot.fallback import in_place_of_current, readable_manifests, whole_snapshots
from hirag_dist.storage.snapshot.manifest import UpdateNote
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.spill import SpillFile
from hirag_dist.storage.store import Store
from hirag_dist.types import FloatMatrix, IntVector

logger = logging.getLogger(__name__)
_STATE = (MENTIONS, SUMMARIES, REPORT_INPUTS)
_NOT_DECISIVE = (
    "config.max_reject_ratio",
    "config.pack_tokens",  # and the four keys of former versions that it stands for
    "config.pack_units",
    "config.clustering.summary_pack_tokens",
    "config.communities.report_pack_tokens",
    "config.resolution.pairs_per_call",
    "windows.",  # the sizes that follow from windows are in config
)
NO_STATE = "it was built by an earlier version or imported, and holds no state for updates"
CHANGED_CONFIGURATION = "the configuration changed: "  # and how
_MAX_DIFFERENCES = 5
_MAX_BYTES = 16 << 20  # of a table in memory; a larger one is mapped from a file
_COMPRESSION = 4  # of the text of a table in its file, at most
_KEPT = ("entities", "relations", "clusters", "layers", SUMMARIES, REPORT_INPUTS)


@dataclass(frozen=True)
class UpdateBase:
    """An open snapshot with update state, or nothing: a build is an update of an index without a document.

    Attributes:
        opened: the snapshot; None for nothing, whose tables are all empty.
        note: what the update that made it noted; of nothing, a note before the first update.
        spill: Folder from which large tables are mapped; None: they are in memory.
    """

    opened: Snapshot | None = None
    note: UpdateNote = field(default_factory=lambda: UpdateNote(number=-1))
    spill: SpillFile | None = None
    _tables: dict[str, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_nothing(self) -> bool:
        """Whether there is no snapshot."""
        return self.opened is None

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot, where there is one."""
        assert self.opened is not None
        return self.opened

    @property
    def snapshot_id(self) -> str:
        """Id of the snapshot."""
        return self.snapshot.manifest.snapshot_id

    @property
    def number(self) -> int:
        """Number of updates since it was built from nothing; −1 of nothing."""
        return self.note.number

    @property
    def embedder(self) -> tuple[str, int]:
        """Identity of the embedder of its vectors, and their dimensions."""
        decisive = self.note.decisive
        return str(decisive["embedder"]), int(decisive["dim"])

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table of the snapshot. Those that several steps need are kept; large ones are mapped from a file."""
        if self.opened is None:
            empty: pa.Table = getattr(schemas, name.upper()).empty_table()
            return empty if columns is None else empty.select(columns)
        if name not in self._tables:
            is_large = self._is_large(name)
            if name not in _KEPT and (columns is not None or not is_large):
                return self.snapshot.table(name, columns).combine_chunks()
            self._tables[name] = self._read_mapped(name) if is_large else self.snapshot.table(name).combine_chunks()
        return self._tables[name] if columns is None else self._tables[name].select(columns)

    def _is_large(self, name: str) -> bool:
        """Return whether a table is mapped, because there is a folder for it and it would take much memory."""
        if self.spill is None:
            return False
        return self.snapshot.manifest.table_bytes(name) * _COMPRESSION > _MAX_BYTES

    def _read_mapped(self, name: str) -> pa.Table:
        assert self.spill is not None
        pieces = self.snapshot.pieces(name)
        first = next(pieces)
        return self.spill.whole(chain([first], pieces), first.schema)

    def rows(self, table: pa.Table, rows: IntVector) -> pa.Table:
        """Return rows of a table; many are mapped from a file."""
        if self.spill is None or table.nbytes * len(rows) <= _MAX_BYTES * table.num_rows:
            return rows_of_table(table, rows)
        return self.spill.rows(table, rows)

    def runs(self, table: pa.Table, rows: IntVector) -> pa.Table:
        """Return rows of a table; long runs of a large one stay where they are, as a chunk each."""
        return rows_of_table(table, rows) if self.spill is None else self.spill.arranged(table, rows)

    def joined(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return tables one after another as one, each column one array; a large one is mapped from a file."""
        if self.spill is None or sum(table.nbytes for table in tables) <= _MAX_BYTES:
            return pa.concat_tables(tables).combine_chunks()
        return self.spill.whole(tables, tables[0].schema)

    def mapped_arrays(self, *arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Return arrays of numbers, of one dimension; large ones are mapped from a file."""
        return tuple(each if each.nbytes <= _MAX_BYTES else self._mapped_array(each) for each in arrays)

    def _mapped_array(self, values: NDArray[Any]) -> NDArray[Any]:
        column = self.joined([pa.table([values], names=["values"])]).column(0)
        mapped: NDArray[Any] = column.chunk(0).to_numpy() if column.num_chunks == 1 else values
        return mapped

    def mapped_sets(self, sets: KeySets) -> KeySets:
        """Return sets of keys, mapped from a file where they are large."""
        return KeySets(*self.mapped_arrays(sets.indptr, sets.keys))

    def sorted(self, parts: Iterable[pa.Table], schema: pa.Schema, by: Sequence[str]) -> pa.Table:
        """Return tables as one, sorted by some columns, each column one array; mapped from a file."""
        if self.spill is None:
            whole = pa.concat_tables([schema.empty_table(), *parts])
            return whole.sort_by([(name, "ascending") for name in by]).combine_chunks()
        table = self.spill.table(parts, schema, by)
        return table if all(column.num_chunks <= 1 for column in table.columns) else self.spill.whole([table], schema)

    def mapped(self, parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
        """Return tables one after another as one, mapped from a file."""
        if self.spill is None:
            return pa.concat_tables([schema.empty_table(), *parts])
        return self.spill.table(parts, schema)

    def changed(
        self, before: pa.Table, gone: IntVector, new: Iterable[pa.Table], schema: pa.Schema, by: Sequence[str]
    ) -> ChangedRows:
        """Return a sorted table of the snapshot without some of its rows and with new ones (`changed_rows`).

        Args:
            new: tables; where `before` is empty, one is in memory at a time.
        """
        if not before.num_rows:
            table = self.sorted(new, schema, by)
            return ChangedRows(table, np.full(table.num_rows, -1, np.int64))
        found = changed_rows(before, gone, pa.concat_tables([schema.empty_table(), *new]), by, self.rows)
        return ChangedRows(found.table, *self.mapped_arrays(found.origin))

    def dataset(self, name: str, schema: pa.Schema) -> Dataset:
        """Return a table of the snapshot as a dataset, read where it lies."""
        if self.opened is None:
            return Dataset(schema)
        manifest = self.snapshot.manifest
        rows = manifest.counts.get(name, 0)
        if not rows:
            return Dataset(schema)
        file = f"{CHANGED if name in manifest.divided_tables else ''}{name}.parquet"
        path = f"{self.snapshot.folder}/{file}"
        return Dataset(schema, (DatasetPart(path, rows, manifest.content[name], manifest.files[file].sha256),))

    def release(self, *names: str) -> None:
        """Drop tables from memory that no step needs any more."""
        for name in names:
            self._tables.pop(name, None)

    def layer_rows(self, name: str, layer: int) -> tuple[pa.Table, int]:
        """Return the rows of a layer, of a table that is sorted by layers, and the number of the first one."""
        first, last = rows_between(self.table(name, ["layer"])["layer"], layer)
        return self.table(name).slice(first, last - first), first

    def layer_entities(self, layer: int) -> tuple[pa.Table, int]:
        """Return ENTITIES of a layer, sorted by id, and the row of the first one in the snapshot."""
        found, first = self.layer_rows("entities", layer)
        return found.cast(ENTITIES), first

    def arranged(self, datasets: DatasetStore, vectors: Dataset, ids: pa.ChunkedArray, dim: int) -> FloatMatrix:
        """Return (len(ids), dim) vectors, mapped from a file, in the order of ids; VECTORS have them in any order."""
        if self.spill is None:
            found = datasets.read(vectors)
            return vector_rows(found, dim, rows_of(ids, found["id"]))
        own, matrix = vector_blocks(self.spill, datasets.tables(vectors), dim)
        return self.spill.ordered(matrix, rows_of(ids, own))


def find_base(store: Store, decisive: Mapping[str, Any]) -> tuple[UpdateBase | None, str]:
    """Return the current snapshot as the base of an update, or None and the reason.

    Where it is damaged or gone, the newest whole snapshot that can be updated is the base. Its vectors may be those of
    another embedder: `check_embedder` tells.

    Args:
        store: the index. In a local folder every file of the base is compared with its hash.
        decisive: what decides the content of the index now (`Build.decisive`).
    """
    snapshot_id = current_id(store)
    if snapshot_id is None:
        return None, ""
    full_check = store.local is not None
    try:
        return _as_base(open_snapshot(store, full_check=full_check), decisive)
    except (SnapshotCorrupt, SnapshotNotFound) as error:
        for snapshot in whole_snapshots(store, full_check=full_check):
            base, reason = _as_base(snapshot, decisive)
            if base is not None:
                in_place_of_current(snapshot, error)
                return base, ""
            logger.info("snapshot %s is not updated: %s", snapshot.manifest.snapshot_id, reason)
        return None, str(error)
    except HiragError as error:
        return None, str(error)


def open_base(store: Store, snapshot_id: str, decisive: Mapping[str, Any]) -> tuple[UpdateBase | None, str]:
    """Return a snapshot as the base of an update, or None and the reason; see `find_base`."""
    try:
        snapshot = open_snapshot(store, snapshot_id, full_check=store.local is not None)
    except HiragError as error:
        return None, str(error)
    return _as_base(snapshot, decisive)


def _as_base(snapshot: Snapshot, decisive: Mapping[str, Any]) -> tuple[UpdateBase | None, str]:
    manifest = snapshot.manifest
    note = manifest.update
    if note is None or not note.decisive or any(name not in manifest.counts for name in _STATE):
        return None, NO_STATE
    base = UpdateBase(snapshot, note)
    embedder, dim = base.embedder
    changes = differences(note.decisive, {**decisive, "embedder": embedder, "dim": dim})
    if changes:
        return None, f"{CHANGED_CONFIGURATION}{in_short(changes)}"
    return base, ""


def check_embedder(snapshot: Snapshot, decisive: Mapping[str, Any]) -> None:
    """Refuse the update of a snapshot whose vectors are another embedder's: they could not be compared with new ones.

    Args:
        decisive: what decides the content of the index now (`Build.decisive`). More than the embedder may differ, as
            where the configuration was forgotten: an index must not be built from nothing by that.
    """
    note = snapshot.manifest.update
    if note is None or not note.decisive:
        return
    base = UpdateBase(snapshot, note)
    embedder, dim = decisive["embedder"], decisive["dim"]
    if base.embedder == (embedder, dim):
        return
    uri = snapshot.store.uri
    where = shlex.quote(uri)
    raise ConfigError(
        f"{uri} was built with the embedder {base.embedder[0]} of {base.embedder[1]} dimensions, and {embedder} of "
        f"{dim} is configured. `hirag-dist index --reembed --index {where}` makes the vectors anew and keeps "
        f"everything else, without a chat call; `hirag-dist index INPUT --rebuild --index {where}` builds from nothing."
        " To keep the embedder, configure it in llm.roles.embed"
    )


def check_label_field(
    store: Store, label_field: str | None, recorded: tuple[str, str | None], snapshot_id: str | None = None
) -> None:
    """Refuse to read INPUT without a named field of labels where the index was read with one.

    Labels restrict access: a forgotten option would open the documents to every caller. The records of builds know
    also runs that changed nothing. Where they name no field, the snapshot decides, unless it was built from nothing
    without one; where it cannot be opened and the records do not tell, any other snapshot of the index counts.

    Args:
        store: the index.
        recorded: the field of labels that the records of builds name, empty for none, and the id of the snapshot that
            was built from nothing without one, None where the records do not tell.
        snapshot_id: id of the snapshot that the update starts from; None: the current one.

    Raises:
        ConfigError: the message names both ways on.
    """
    remembered, forgotten_by = recorded
    if not remembered:
        try:
            manifests = [open_snapshot(store, snapshot_id).manifest]
        except SnapshotError:
            manifests = [] if forgotten_by else list(readable_manifests(store))
        notes = [manifest.update for manifest in manifests if manifest.snapshot_id != forgotten_by]
        remembered = next((note.label_field for note in notes if note is not None and note.label_field), "")
    if remembered and label_field is None:
        raise ConfigError(
            f"{store.uri} was read with the labels of the field {remembered!r}, and this run names no field of labels, "
            f"so that every caller would see what it reads: give --label-field {shlex.quote(remembered)} "
            "(reading.label_field), or run `index --rebuild` to index without labels"
        )


def open_configured(snapshot: Snapshot, config: Config) -> tuple[UpdateBase | None, str]:
    """Return a snapshot as the base of an update, or None and the reason, as far as that is known without a call."""
    note = snapshot.manifest.update
    decisive = {} if note is None else dict(note.decisive)
    return _as_base(snapshot, decisive | {"config": content_config(config)})


_FIXED_NOW = {  # keys that former versions recorded → the value that holds without them
    "clustering.covariance": "tied",
    "clustering.reduction": "pca",
    "communities.report_min_entities": "4",
    "homonyms": "merge",
    "resolution.llm_band": "0.2",
    "resolution.threshold": "0.8",
    "resolution.tiers": "normalise, alias, vector, llm",
}
_NO_CONTENT = {
    *("llm", "retrieval", "vectors", "service", "execution", "prompts", "reading", "metadata", "update"),
    "traces_endpoint",
}


def content_config(config: Config) -> dict[str, Any]:
    """Return the part of the configuration that decides the content of an index, as JSON.

    `communities.report_share` is not part of it: an update follows another share without a build from nothing. Nor are
    `clustering.member_chars` and `clustering.reduction` by default, since former versions did not record them.
    """
    unused = {name for name, used in (("resolution", config.resolution.enabled), ("claims", config.claims)) if not used}
    excluded: dict[str, Any] = dict.fromkeys(_NO_CONTENT | unused, True)
    excluded["communities"] = {"report_share"}
    defaults = {"member_chars": MEMBER_CHARS, "reduction": "pca"}
    excluded["clustering"] = {name for name, value in defaults.items() if getattr(config.clustering, name) == value}
    dumped = config.model_dump(mode="json", exclude=excluded)
    if config.resolution.enabled:
        dumped["resolution"]["rules"] = ProposePairs.version  # names that other rules joined are all resolved again
    return dumped | {"extraction": config.extraction.content()}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences of two configurations that decide the content of an index (`Build.decisive`)."""
    old, new = _flatten(before), _flatten(now)
    sizes = [old.get(f"config.clustering.{name}", "0") for name in ("max_size", "target_size")]
    fixed = _FIXED_NOW | ({"clustering.max_size": sizes[0]} if int(sizes[0]) == 2 * int(sizes[1]) else {})
    old = {key: value for key, value in old.items() if fixed.get(key.removeprefix("config.")) != value}
    if not (old.get("kernels") and new.get("kernels")):  # unknown until a worker with a GPU names them
        new["kernels"] = old.get("kernels", "")
    return [
        f"{key}: {old.get(key, 'not there')} → {new.get(key, 'not there')}"
        for key in sorted(old | new)
        if old.get(key) != new.get(key) and not key.startswith(_NOT_DECISIVE)
    ]


def in_short(changes: Sequence[str]) -> str:
    """Return the first few differences as one text, "" for none."""
    hidden = len(changes) - _MAX_DIFFERENCES
    return "; ".join(changes[:_MAX_DIFFERENCES]) + (f" and {hidden} more" if hidden > 0 else "")


def _flatten(values: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(values, Mapping):
        flat: dict[str, str] = {}
        for key, value in values.items():
            flat |= _flatten(value, f"{prefix}.{key}" if prefix else str(key))
        return flat
    return {prefix: ", ".join(map(str, values)) if isinstance(values, (list, tuple)) else str(values)}
