"""Verification of a removal: every table, array and file that could still derive from removed documents is searched."""

from __future__ import annotations

import io
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.application.forget_evidence import RemovedDocuments, equal_rows, finished_snapshots
from hirag_dist.application.stored_replies import (
    models_of_last_build,
    replay_keys,
    snapshot_vector_keys,
    text_vector_keys,
)
from hirag_dist.composition.build_records import recorded_embedder
from hirag_dist.composition.models import cut_as_index, settle_embedder
from hirag_dist.config.model import Config, VectorsConfig
from hirag_dist.core.prompts.templates import FIELD
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.errors import BackendUnavailable
from hirag_dist.llm.reply_store import scan_records
from hirag_dist.llm.reply_store.block_format import unpack_value
from hirag_dist.retrieval.vector_index.milvus import MilvusCollections, lite_collections, server_collections
from hirag_dist.storage.layout import (
    BUILD,
    BUILDS,
    CACHE,
    DROPS,
    FORGET,
    LEDGER,
    LOCK,
    MANIFEST,
    is_snapshot_folder,
    snapshot_path,
)
from hirag_dist.storage.serving.mmap_files import map_array
from hirag_dist.storage.snapshot.cache import cached_folders
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)

_BATCH_ROWS = 16_384
_MAX_EXAMPLES = 3
_EXAMPLE_CHARS = 80
_ID_CHARS = 24
_MAX_PATH_CHARS = 4096
_KEY_COLUMNS = frozenset({"sources", "unread"})  # of text keys
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
        return " ".join(min(found)) if found else None

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
    """Count the traces in one file, by its kind: Parquet, Arrow, shuffle, JSON, a matrix, else text."""
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
        text = store.read_bytes(path).decode("utf-8", "replace")
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


def temporary_files(store: Store, older_than_s: float, now: float) -> Iterator[str]:
    """Yield the temporary files that killed processes left in a local folder."""
    if store.local is not None:
        for path in sorted(Path(store.local).rglob(".tmp-*")):
            if path.is_file() and now - path.stat().st_mtime > older_than_s:
                yield str(path.relative_to(store.local))


LEFTOVER_S = 60.0  # age of a temporary file from which its process counts as killed
_SNAPSHOTS = "snapshots"
_MILVUS = "milvus"
_OTHERWISE = (_SNAPSHOTS, LEDGER, _MILVUS, CACHE, LOCK, FORGET)  # searched in their own way, or without content


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """Outcome of a verification.

    Attributes:
        documents: ids of the documents, all versions.
        unknown: ids that no snapshot knows; they were searched for as strings.
        problems: places that could not be read, so that nothing is proved there.
        not_removed: ids of documents that the current snapshot has; they were not searched for.
    """

    documents: tuple[str, ...]
    unknown: tuple[str, ...]
    findings: tuple[Finding, ...]
    problems: tuple[str, ...] = ()
    not_removed: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """True if every document is removed, every place was read and nothing was found."""
        return not (self.findings or self.problems or self.not_removed)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-ready values, the output of `hirag-dist remove --verify --json`."""
        return {"clean": self.clean} | asdict(self)


def verify_removed(
    store: Store,
    config: Config,
    removed: RemovedDocuments,
    *,
    snapshot_only: bool = False,
    without: Sequence[str] = (),
    with_collections: bool = True,
) -> VerificationResult:
    """Search the index for whatever derives from removed documents.

    Args:
        config: of the last build; Milvus and caches are found by it, and replies by what was asked.
        snapshot_only: search the current snapshot alone, which is what a removal without forgetting promises.
        without: snapshots that are left out, since they are known to hold the documents.
    """
    search = TraceSearch(removed)
    findings: list[Finding] = []
    problems: list[str] = []
    current = current_id(store)
    if current is not None:
        findings += _of_snapshot(search, store, current, f"snapshot {current} (current)")
    if not snapshot_only:
        finished = finished_snapshots(store)
        for name in store.names(_SNAPSHOTS):
            if name != current and name not in without:
                kind = "snapshot" if name in finished else "unfinished snapshot"
                findings += _of_snapshot(search, store, name, f"{kind} {name}")
        findings += _of_ledger(search, store, config, removed)
        findings += _of_files(search, store, without)
        stale = [name for name in removed.snapshots if name != current and name not in without]
        findings += _of_caches(search, store, config, stale, finished)
        if with_collections:
            found, problems = find_collections(store, config.vectors, stale)
            findings += found
    return VerificationResult(
        tuple(sorted(removed.ids)), tuple(sorted(removed.unknown)), tuple(findings), tuple(problems)
    )


def _of_snapshot(search: TraceSearch, store: Store, name: str, place: str) -> list[Finding]:
    folder = snapshot_path(name)
    counter = FindingCounter(place)
    for path in store.walk(folder):
        file = path.removeprefix(f"{folder}/")
        search_file(search, store, path, file.removesuffix(".parquet"), counter)
    return counter.findings()


def _of_ledger(search: TraceSearch, store: Store, config: Config, removed: RemovedDocuments) -> list[Finding]:
    """Return the stored replies about removed chunks: by what was asked, and by what they say."""
    chunks = removed.own_chunks
    keys: set[bytes] = set()
    if chunks.num_rows and store.names(LEDGER):
        config = cut_as_index(settle_embedder(config, recorded_embedder(store)), store)
        models = models_of_last_build(config, store)
        alone = config.model_copy(update={"resolution": config.resolution.model_copy(update={"enabled": False})})
        keys = replay_keys(alone, store, models, chunks)
        keys |= text_vector_keys(chunks["text"].to_pylist(), models.embedder, models.dim)
        if (current := current_id(store)) is not None:
            keys -= snapshot_vector_keys(open_snapshot(store, current), models.embedder, models.dim)
    counter = FindingCounter("reply store")
    for record in scan_records(store):
        value = unpack_value(record.value)
        vector = value.get("vector")
        if record.key in keys:
            counter.add("vector of a text" if vector else "reply to a request", value.get("text", record.key.hex()))
        elif isinstance(vector, bytes):
            if search.vector(vector):
                counter.add("vector of a text", record.key.hex())
        elif isinstance(value.get("text"), str) and (trace := reply_trace(search, value["text"])) is not None:
            counter.add("text of a reply", trace)
    return counter.findings()


def _of_files(search: TraceSearch, store: Store, without: Sequence[str]) -> list[Finding]:
    """Return the findings in work folders, records of builds and any other file of the index."""
    counters: dict[str, FindingCounter] = {}
    for path in store.walk(""):
        top = path.partition("/")[0]
        if top in _OTHERWISE or top.startswith(f".{LOCK}") or ".tmp-" in path:
            continue
        place = {BUILD: "records of builds", BUILDS: "records of builds", DROPS: "accepted losses"}.get(top, top)
        counter = counters.setdefault(place, FindingCounter(place))
        search_file(search, store, path, "/".join(path.split("/")[:2]), counter)
    left = FindingCounter("temporary files")
    for path in temporary_files(store, LEFTOVER_S, time.time()):
        left.add("of a killed process, content unknown", path)
    return [finding for counter in (*counters.values(), left) for finding in counter.findings()]


def _of_caches(
    search: TraceSearch, store: Store, config: Config, stale: Sequence[str], finished: Sequence[str]
) -> list[Finding]:
    counter = FindingCounter(CACHE)
    for name in store.names(CACHE):
        if name in stale or (name not in finished and is_snapshot_folder(name)):
            counter.add("files of a snapshot that held them, or is gone", f"{CACHE}/{name}")
        else:
            for path in store.walk(f"{CACHE}/{name}"):
                search_file(search, store, path, f"{CACHE}/{name}", counter)
    for name in stale:
        for folder in cached_folders(store, name, config.service.cache_dir):
            counter.add("files of a snapshot that held them, or is gone", folder)
    return counter.findings()


def find_collections(store: Store, vectors: VectorsConfig, stale: Sequence[str]) -> tuple[list[Finding], list[str]]:
    """Return collections and rows in Milvus of snapshots that are stale or gone, and problems of reaching it."""
    findings: list[Finding] = []
    problems: list[str] = []
    finished = finished_snapshots(store)
    with ExitStack() as stack:
        try:
            for collections, shared in open_collections(store, vectors):
                stack.enter_context(collections)
                gone = set() if shared else collections.snapshots() - set(finished)
                if names := collections.of(sorted({*stale, *gone})):
                    findings.append(Finding(collections.where, "collection", len(names), tuple(names[:3])))
                for name, n_rows in collections.unneeded_rows([open_snapshot(store, one) for one in finished]).items():
                    findings.append(Finding(collections.where, "rows that no snapshot needs", n_rows, (name,)))
        except BackendUnavailable as error:
            problems.append(str(error))
    return findings, problems


def open_collections(store: Store, vectors: VectorsConfig) -> Iterator[tuple[MilvusCollections, bool]]:
    """Yield the Milvus servers that may have collections of an index, and whether other indexes share them.

    Raises:
        BackendUnavailable: one is out of reach, or a service owns the file of Milvus Lite.
    """
    if vectors.uri:
        yield server_collections(vectors), True
    lite = lite_collections(store)
    if lite is not None:
        yield lite, False
