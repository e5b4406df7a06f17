"""Tables as Parquet files in the store: the input and output of a stage.

A file of a local index is hashed once in each process before it is read, and whenever a snapshot is published from it.
An object store checks what it keeps; there a file is hashed where reading it fails, and for publishing. Pages have
checksums too, which every read compares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar, dataclass_transform, get_args, get_origin, get_type_hints

import pyarrow as pa

from hirag_dist.errors import HiragError, SnapshotCorrupt, StoreError, WorkFileDamaged
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.layout import MANIFEST, WORK, work_path
from hirag_dist.storage.snapshot.divided_tables import divided_table, pieces_of_table, rows_of_table, table_files
from hirag_dist.storage.snapshot.manifest import parse_manifest
from hirag_dist.storage.store import Store

Schemas = Mapping[str, pa.Schema]


@dataclass(frozen=True, slots=True)
class DatasetPart:
    """A Parquet file in the store. A divided table of a snapshot has the path of its file of changed rows.

    Attributes:
        sha256: of its bytes as they were written; "" where that was not recorded.
    """

    path: str
    rows: int
    digest: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table as files in the store, in order."""

    schema: pa.Schema
    parts: tuple[DatasetPart, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)

    def __add__(self, other: Dataset) -> Dataset:
        return Dataset(self.schema, self.parts + other.parts)


@dataclass_transform(frozen_default=True)
class TableSet:
    """Named tables with their schemas: the inputs or the outputs of a stage.

    A subclass declares one field for each table, `name: Annotated[Dataset, SCHEMA]`, and becomes a frozen dataclass.
    An optional input is `Annotated[Dataset | None, SCHEMA] = None`.

    Attributes:
        schemas: field name → schema.
    """

    schemas: ClassVar[Schemas] = {}

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)
        hints = get_type_hints(cls, include_extras=True)
        cls.schemas = {name: get_args(hint)[1] for name, hint in hints.items() if get_origin(hint) is Annotated}

    def datasets(self) -> dict[str, Dataset]:
        """Return the datasets by field name, without optional ones that are None."""
        values = {name: getattr(self, name) for name in self.schemas}
        return {name: dataset for name, dataset in values.items() if dataset is not None}


class DatasetStore:
    """Datasets as tables in memory, and tables as datasets."""

    def __init__(self, store: Store) -> None:
        self.folders: set[str] = set()
        self._store = store

    def put(self, name: str, table: pa.Table) -> Dataset:
        """Return a dataset of a table that no stage made; its path hashes its content."""
        digest = table_digest(table)
        folder = work_path(name, digest[:24])
        self.folders.add(folder)
        path = f"{folder}/part-000000.parquet"
        sha256 = self._whole(path, digest, table.schema)
        if sha256 is None:
            sha256 = self._store.write_table(path, table).sha256
        return Dataset(table.schema, (DatasetPart(path, table.num_rows, digest, sha256),) if table.num_rows else ())

    def _whole(self, path: str, digest: str, schema: pa.Schema) -> str | None:
        """Return the hash of a file with this content, None where there is none or it is damaged."""
        try:
            sha256 = self._store.sha256(path) if self._store.exists(path) else None
            same = sha256 is not None and table_digest(self._store.read_table(path).cast(schema)) == digest
        except (StoreError, pa.ArrowException, ValueError):
            return None
        return sha256 if same else None

    def read(self, dataset: Dataset, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a dataset, or some of its columns, as one table."""
        schema = dataset.schema if columns is None else pa.schema([dataset.schema.field(name) for name in columns])
        tables = [read_part(self._store, part.path, part.sha256, columns) for part in dataset.parts]
        return pa.concat_tables(tables).cast(schema).combine_chunks() if tables else schema.empty_table()

    def tables(self, dataset: Dataset) -> Iterator[pa.Table]:
        """Yield a dataset in pieces, each a part or some row groups of one, one at a time in memory.

        Every part is compared with its hash before.
        """
        for part in dataset.parts:
            for piece in part_pieces(self._store, part.path, part.sha256):
                yield piece.cast(dataset.schema)


_MAX_VERIFIED = 1 << 20  # files that a process remembers to have compared
_verified: set[bytes] = set()


def read_part(store: Store, path: str, sha256: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a file of a dataset.

    Args:
        sha256: as it was recorded; "" for files of earlier versions.

    Raises:
        WorkFileDamaged: the file is gone, or is not what was written.
        SnapshotCorrupt: as above, for a file of a snapshot.
    """
    with _checked(store, path, sha256):
        if (divided := divided_table(path)) is not None:
            return pa.concat_tables(pieces_of_table(store, *divided, columns))
        return store.read_table(path, columns)


def read_part_rows(
    store: Store, path: str, sha256: str, start: int, stop: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return rows [start, stop) of a file of a dataset; as `read_part`."""
    with _checked(store, path, sha256):
        if (divided := divided_table(path)) is not None:
            return rows_of_table(store, *divided, start, stop, columns)
        return store.read_rows(path, start, stop, columns)


def part_pieces(store: Store, path: str, sha256: str) -> Iterator[pa.Table]:
    """Yield a file of a dataset in pieces, for publishing: it is hashed first, also a second time; as `read_part`."""
    if sha256 and is_damaged(store, path, sha256):
        raise _damaged(store, path)
    with _checked(store, path, sha256):
        if (divided := divided_table(path)) is not None:
            yield from pieces_of_table(store, *divided)
        else:
            yield from store.pieces(path)


def is_damaged(store: Store, path: str, sha256: str) -> bool:
    """Return whether a file is gone or is not what was written; False where that cannot be found out.

    Args:
        sha256: as it was recorded; "": the file is damaged if it is no Parquet file.
    """
    try:
        if (divided := divided_table(path)) is not None:
            return _is_divided_table_damaged(store, *divided)
        if store.size(path) is None:
            return True
        if sha256:
            return store.sha256(path) != sha256
        for _ in store.pieces(path):
            pass
    except StoreError as error:
        cause = error.__cause__
        return not sha256 and not (isinstance(cause, OSError) and cause.errno is not None)
    return False


def _is_divided_table_damaged(store: Store, folder: str, name: str) -> bool:
    """Return whether a file of a divided table is gone or is not what the manifest of its snapshot lists."""
    manifest = parse_manifest(store.read_bytes(f"{folder}/{MANIFEST}"), f"{store.uri}/{folder}")
    entries = [(f"{folder}/{file}", manifest.files.get(file)) for file in table_files(name)]
    return any(
        entry is None or store.size(path) is None or not entry.matches(store.read_blocks(path))
        for path, entry in entries
    )


@contextmanager
def _checked(store: Store, path: str, sha256: str) -> Iterator[None]:
    if store.local is not None and sha256:
        known = hashlib.sha256(f"{store.root}\n{path}\n{sha256}".encode()).digest()
        if known not in _verified:
            if is_damaged(store, path, sha256):
                raise _damaged(store, path)
            if len(_verified) >= _MAX_VERIFIED:
                _verified.clear()
            _verified.add(known)
    try:
        yield
    except StoreError as error:
        if (sha256 or path.startswith(f"{WORK}/")) and is_damaged(store, path, sha256):
            raise _damaged(store, path) from error
        raise


def _damaged(store: Store, path: str) -> HiragError:
    where = f"{store.uri}/{path}"
    if path.startswith(f"{WORK}/"):
        return WorkFileDamaged(f"{where} is damaged or gone", path)
    return SnapshotCorrupt(f"{where} was altered after it was written; build again or serve another snapshot")
