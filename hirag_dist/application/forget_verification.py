"""Verification of a removal: every place that could still derive from removed documents is read."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from hirag_dist.application.forget_evidence import RemovedDocuments, finished_snapshots
from hirag_dist.application.forget_search import (
    Finding,
    FindingCounter,
    TraceSearch,
    reply_trace,
    search_file,
    temporary_files,
)
from hirag_dist.application.stored_replies import (
    models_of_last_build,
    replay_keys,
    snapshot_vector_keys,
    text_vector_keys,
)
from hirag_dist.composition.build_records import recorded_embedder
from hirag_dist.composition.models import cut_as_index, settle_embedder
from hirag_dist.config.model import Config, VectorsConfig
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
    snapshot_path,
)
from hirag_dist.storage.snapshot.cache import cached_folders
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
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
        findings: what still derives from them.
        problems: places that could not be read, so that nothing is proved there.
    """

    documents: tuple[str, ...]
    unknown: tuple[str, ...]
    findings: tuple[Finding, ...]
    problems: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """True if every place was read and nothing was found."""
        return not self.findings and not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-ready values, the output of `hirag-dist remove --verify --json`."""
        return {
            "clean": self.clean,
            "documents": list(self.documents),
            "unknown": list(self.unknown),
            "findings": [asdict(finding) for finding in self.findings],
            "problems": list(self.problems),
        }


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
        with_collections: look for collections in Milvus too.

    Raises:
        ConfigError: this is not the configuration of the last build.
        StoreError: a file cannot be read.
        SnapshotError: a snapshot is damaged.
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
        keys -= _shared_keys(store, models.embedder, models.dim)
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


def _shared_keys(store: Store, embedder: str, dim: int) -> set[bytes]:
    """Return the keys of the vectors of the current snapshot's texts."""
    current = current_id(store)
    return set() if current is None else snapshot_vector_keys(open_snapshot(store, current), embedder, dim)


def _of_files(search: TraceSearch, store: Store, without: Sequence[str]) -> list[Finding]:
    """Return the findings in work folders, records of builds and any other file of the index.

    Args:
        without: snapshots whose late reports are left out with them.
    """
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
        if name in stale or (name not in finished and not name.startswith(".")):
            counter.add("files of a snapshot that held them, or is gone", f"{CACHE}/{name}")
        else:
            for path in store.walk(f"{CACHE}/{name}"):
                search_file(search, store, path, f"{CACHE}/{name}", counter)
    for name in stale:
        for folder in cached_folders(store, name, config.service.cache_dir):
            counter.add("files of a snapshot that held them, or is gone", folder)
    return counter.findings()


def find_collections(store: Store, vectors: VectorsConfig, stale: Sequence[str]) -> tuple[list[Finding], list[str]]:
    """Return collections and rows in Milvus of snapshots that are stale or gone, and problems of reaching it.

    Args:
        stale: snapshots that hold removed documents.
    """
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
