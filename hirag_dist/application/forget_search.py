"""Search of tables, arrays and files for traces of removed documents."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.application.forget_evidence import RemovedDocuments, equal_rows
from hirag_dist.core.prompts.templates import FIELD
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.core.text.shingles import Passage
from hirag_dist.storage.layout import BUILD, BUILDS, MANIFEST
from hirag_dist.storage.serving.mmap_files import map_array
from hirag_dist.storage.store import Store

_BATCH_ROWS = 16_384
_MAX_EXAMPLES = 3
_EXAMPLE_CHARS = 80
_ID_CHARS = 24
_MAX_PATH_CHARS = 4096
_KEY_COLUMNS = frozenset({"sources"})  # of text keys
_RECORDS = (MANIFEST, BUILD)  # they hold the configuration, whose words may be names
_VOCABULARY = frozenset({"type", "decision", "tier", "kind", "origin", "status", "stage", "role", "model", "endpoint"})


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that derives from removed documents.

    Attributes:
        place: the part of the index, such as a snapshot or the ledger.
        what: a table's column, a file, or a kind of record.
        count: values, rows or records.
        examples: a few of them, shortened.
    """

    place: str
    what: str
    count: int
    examples: tuple[str, ...] = ()


class FindingCounter:
    """Findings of one place, counted by what they are."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}

    def add(self, what: str, example: object, count: int = 1) -> None:
        """Count an occurrence."""
        self._counts[what] += count
        examples = self._examples.setdefault(what, [])
        shown = shorten(one_line(str(example)), _EXAMPLE_CHARS)
        if len(examples) < _MAX_EXAMPLES and shown not in examples:
            examples.append(shown)

    def findings(self) -> list[Finding]:
        """Return the counts as findings."""
        return [Finding(self._place, what, self._counts[what], tuple(self._examples[what])) for what in self._counts]


class TraceSearch:
    """Recognises traces in values of any kind."""

    def __init__(self, removed: RemovedDocuments) -> None:
        self._removed = removed
        self._keys = np.array(sorted(removed.text_keys), np.int64)
        self._names = removed.names if len(removed.names) else None

    def text(self, text: str, with_names: bool = True) -> str | None:
        """Return the trace that a text holds, None where it holds none."""
        if text in self._removed.values or self._is_path(text):
            return text
        if len(text) == _ID_CHARS and text.isalnum():
            return None
        found = self._removed.passages.within(text)
        if not found and with_names and self._names is not None:
            found = self._names.within(text)
        return _shown(found)

    def leaves(self, value: Any, where: str, counter: FindingCounter, with_names: bool = True) -> None:
        """Count the traces in the strings of a JSON value, its keys too."""
        if isinstance(value, str):
            if (trace := self.text(value, with_names)) is not None:
                counter.add(where, trace)
        elif isinstance(value, Mapping):
            for key, each in value.items():
                self.leaves(str(key), where, counter, with_names)
                self.leaves(each, where, counter, with_names)
        elif isinstance(value, list):
            for each in value:
                self.leaves(each, where, counter, with_names)

    def batch(self, batch: pa.RecordBatch | pa.Table, where: str, counter: FindingCounter) -> None:
        """Count the traces in the values of a table, those nested in lists and structs too."""
        for name in batch.schema.names:
            column = batch.column(name)
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                for path, leaf in _leaves(chunk, name):
                    self._leaf(leaf, path, f"{where}.{path}", counter)

    def vectors(self, matrix: Any, where: str, counter: FindingCounter) -> None:
        """Count the rows of a float32 matrix that are vectors of removed chunks or entities."""
        if matrix.ndim == 2 and matrix.dtype == np.dtype("<f4"):
            rows = equal_rows(matrix, self._removed.vectors)
            if len(rows):
                counter.add(where, f"row {rows[0]}", len(rows))

    def vector(self, data: bytes) -> bool:
        """Return whether bytes are such a vector."""
        return data in self._removed.vectors

    def _is_path(self, text: str) -> bool:
        """Return whether a text is a path that ends in that of a document."""
        if "/" not in text or len(text) > _MAX_PATH_CHARS:
            return False
        return any(text[at + 1 :] in self._removed.values for at, char in enumerate(text) if char == "/")

    def _leaf(self, leaf: pa.Array, path: str, where: str, counter: FindingCounter) -> None:
        name = path.rpartition(".")[2]
        if pa.types.is_string(leaf.type) or pa.types.is_large_string(leaf.type):
            for pair in pc.value_counts(leaf).to_pylist():
                value = pair["values"]
                if value and (trace := self.text(value, with_names=name not in _VOCABULARY)) is not None:
                    counter.add(where, trace, pair["counts"])
        elif pa.types.is_binary(leaf.type):
            for value in leaf.to_pylist():
                if value is not None and self.vector(value):
                    counter.add(where, "a vector")
        elif pa.types.is_int64(leaf.type) and path.partition(".")[0] in _KEY_COLUMNS and len(leaf):
            found = leaf.drop_null().to_numpy(zero_copy_only=False)
            hits = found[np.isin(found, self._keys)]
            if len(hits):
                counter.add(where, f"text key {hits[0]}", len(hits))


def search_file(search: TraceSearch, store: Store, path: str, where: str, counter: FindingCounter) -> None:
    """Count the traces in one file, by its kind: Parquet, Arrow, shuffle, JSON, a matrix, else text.

    Raises:
        StoreError: it cannot be read.
    """
    ending = path.rpartition(".")[2]
    if ending == "parquet":
        for batch in store.scan(path, None, _BATCH_ROWS):
            search.batch(batch, where, counter)
    elif ending == "npy":
        matrix = np.load(io.BytesIO(store.read_bytes(path)), allow_pickle=False) if store.local is None else None
        search.vectors(map_array(store.local / path) if store.local is not None else matrix, where, counter)
    elif ending in ("arrow", "pieces"):
        for table in _arrow_tables(store.read_bytes(path), ending):
            search.batch(table, where, counter)
    else:
        with_names = path.rpartition("/")[2] not in _RECORDS and not path.startswith(f"{BUILDS}/")
        _search_text(search, store.read_bytes(path), where, counter, with_names)


def _search_text(search: TraceSearch, data: bytes, where: str, counter: FindingCounter, with_names: bool) -> None:
    text = data.decode("utf-8", "replace")
    for part in (text,) if _json(text) is not None else text.splitlines():
        value = _json(part)
        search.leaves(part if value is None else value, where, counter, with_names)


def reply_trace(search: TraceSearch, reply: str) -> str | None:
    """Return the trace that a reply holds in one of its fields or strings, None where it holds none."""
    counter = FindingCounter("")
    for line in (reply, *reply.splitlines()):
        value = _json(line)
        search.leaves([line, *line.split(FIELD)] if value is None else value, "reply", counter)
    found = counter.findings()
    return found[0].examples[0] if found else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _arrow_tables(data: bytes, ending: str) -> Iterator[pa.Table]:
    if ending == "arrow":
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            yield from (pa.Table.from_batches([reader.get_batch(at)]) for at in range(reader.num_record_batches))
        return
    n_offsets = int(np.frombuffer(data, "<i8", 1)[0]) // 8  # pieces follow their offsets
    for start, stop in pairwise(np.frombuffer(data, "<i8", n_offsets).tolist()):
        if stop > start:
            with pa.ipc.open_stream(pa.BufferReader(data[start:stop])) as stream:
                yield stream.read_all()


def _leaves(array: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    """Yield the arrays of plain values in an array, with their paths."""
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(array.flatten(), path)
    elif pa.types.is_struct(kind):
        for field, part in zip(kind, array.flatten(), strict=True):
            yield from _leaves(part, f"{path}.{field.name}")
    elif pa.types.is_dictionary(kind):
        yield path, array.dictionary_decode()
    else:
        yield path, array


def _shown(found: set[Passage]) -> str | None:
    return " ".join(min(found)) if found else None


def temporary_files(store: Store, older_than_s: float, now: float) -> Iterator[str]:
    """Yield the temporary files that killed processes left in a local folder."""
    if store.local is not None:
        for path in sorted(Path(store.local).rglob(".tmp-*")):
            if path.is_file() and now - path.stat().st_mtime > older_than_s:
                yield str(path.relative_to(store.local))
