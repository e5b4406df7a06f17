"""Estimate of the cost of an update before any call.

Documents and the chunks to extract are exact: INPUT is read and compared by content. Summaries and reports are
estimated from averages of the base, and never exceed the bound of an update.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.ids import text_keys
from hirag_dist.errors import SnapshotError
from hirag_dist.indexing.base import UpdateBase, check_embedder, open_configured
from hirag_dist.indexing.budget import is_unbounded, least_extraction
from hirag_dist.indexing.changed_documents import DocumentCounts, extraction_tokens
from hirag_dist.indexing.estimate import (
    NO_SPEEDS,
    REPORT_IN_PER_ENTITY,
    REPORT_PACK_TOKENS,
    REPORTS_PER_CALL,
    SUMMARIES_PER_CALL,
    SUMMARIES_PER_CLUSTER,
    SUMMARY_PACK_TOKENS,
    TOKENS_PER_ENTITY,
    CostEstimate,
    PlannedDocument,
    PlannedInput,
    StageEstimate,
    Work,
    estimate_planned,
    member_tokens,
    read_planned,
    stages_of,
    units_per_call,
    works_of_build,
)
from hirag_dist.indexing.former_snapshots import WantedDocuments, former_snapshot
from hirag_dist.llm.usage import total_cost
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.types import IntVector

_EXTRACTION = ("extract", "claims")
_REPORT_SHARE = 0.85  # of the limit that a report's material fills at most

_NO_CHANGE = DocumentCounts()


@dataclass(frozen=True)
class DueEstimate:
    """Texts of one kind that an update makes due, about.

    Attributes:
        total: of the base.
        due: whose material changes by `update.staleness` or more, or that derive from removed text.
        written: of the due ones, those that the budget pays.
        tokens: of those that are written.
    """

    total: int = 0
    due: int = 0
    written: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class UpdateEstimate:
    """Estimate of an update, with that of a build from nothing.

    Attributes:
        base: id of the snapshot that it would start from.
        documents: added, changed and removed; exact.
        chunks, tokens: whose text the base does not have, and which are extracted; exact.
        removed_chunks: chunks that would go.
        summaries, reports: that would be made again, about.
        extraction_tokens: of the extraction of the changed documents, on the average of the base; of removed ones,
            what it has cost.
        budget_tokens: that the update may spend in all; None for no bound: the built-in model has none.
        stages, seconds: of the update, see `CostEstimate`.
        rebuild: the estimate of a build from nothing, which finds no reply in the ledger.
        rebuilt_because: why the index would be built from nothing; empty for an update.
        returns_to: the former snapshot that would be current again, for it has the documents of INPUT; empty without.
    """

    base: str
    documents: DocumentCounts = _NO_CHANGE
    chunks: int = 0
    tokens: int = 0
    removed_chunks: int = 0
    summaries: DueEstimate = DueEstimate()
    reports: DueEstimate = DueEstimate()
    extraction_tokens: int = 0
    budget_tokens: int | None = None
    stages: tuple[StageEstimate, ...] = ()
    seconds: float = 0.0
    rebuild: CostEstimate = field(kw_only=True)
    rebuilt_because: str = ""
    returns_to: str = ""

    @property
    def calls(self) -> int:
        """Calls of all stages."""
        return sum(stage.calls for stage in self.stages)

    @property
    def cost_usd(self) -> float | None:
        """Cost of all stages; None where the price of an endpoint is not known."""
        return total_cost(stage.cost_usd for stage in self.stages)


def estimate_update(
    inputs: Sequence[str],
    snapshot: Snapshot,
    config: Config,
    prompts: Prompts,
    latency_s: float | None = None,
    speeds: Mapping[str, float] = NO_SPEEDS,
    *,
    add: bool = False,
    vectors: tuple[str, int] | None = None,
) -> UpdateEstimate:
    """Read INPUT and estimate the update that makes the index equal to it.

    Args:
        snapshot: the current one.
        latency_s, speeds: see `estimate_build`.
        add: estimate the addition of INPUT: documents of the index stay, except those of the same place.
        vectors: identity of the configured embedder and the dimensions of its vectors; None: as the index has them.

    Raises:
        InputError: nothing to read.
        ConfigError: the embedder is not that of the index.
    """
    base, reason = open_configured(snapshot, config)
    if base is not None and vectors is not None:
        check_embedder(snapshot, base.notes["decisive"] | {"embedder": vectors[0], "dim": vectors[1]})
    planned = read_planned(inputs, config)
    if base is not None:
        planned = _with_kept(base, planned, everything=add)
        planned = replace(planned, mentions=_mentions(base, planned.n_chunks))
    rebuild = estimate_planned(planned, config, prompts, latency_s, speeds)
    if base is None:
        return UpdateEstimate(snapshot.manifest.snapshot_id, rebuild=rebuild, rebuilt_because=reason)
    changed = _changed(base, planned)
    if not changed.counts:
        return UpdateEstimate(base.snapshot_id, rebuild=rebuild)
    former = _former(base, planned, config)
    if former is not None:
        return UpdateEstimate(
            base.snapshot_id,
            changed.counts,
            removed_chunks=changed.removed_chunks,
            rebuild=rebuild,
            returns_to=former.snapshot_id,
        )
    per_token = float(base.notes["extraction_per_token"])
    extraction = int(per_token * changed.document_tokens) + changed.removed_extraction
    extraction = max(
        extraction, least_extraction(config.extraction.method, changed.document_tokens + changed.removed_tokens)
    )
    budget = None if is_unbounded(config) else int(config.update.max_ratio * extraction)
    kinds = _due_texts(base, changed, config)
    wanted = sum(text.tokens for text in kinds.values())
    share = min(1.0, max(budget - extraction, 0) / wanted) if wanted and budget is not None else 1.0
    due = {
        name: DueEstimate(text.total, text.due, math.floor(text.due * share), int(text.tokens * share))
        for name, text in kinds.items()
    }
    works = list(_works(changed, due, per_token, config, prompts, base))
    stages, seconds = stages_of(works, config, latency_s, speeds)
    return UpdateEstimate(
        base.snapshot_id,
        changed.counts,
        changed.chunks,
        changed.tokens,
        changed.removed_chunks,
        due["summaries"],
        due["reports"],
        extraction,
        budget,
        stages,
        seconds,
        rebuild=rebuild,
    )


def _mentions(base: UpdateBase, n_chunks: int) -> tuple[float, ...]:
    """Return how many chunks mention each entity, as the base counts them, scaled to a number of chunks."""
    counts = pc.list_value_length(base.table("entities", ["chunk_ids"])["chunk_ids"]).to_numpy()
    scale = n_chunks / max(base.snapshot.manifest.counts["chunks"], 1)
    return tuple((counts[counts > 1] * scale).tolist())


def _with_kept(base: UpdateBase, planned: PlannedInput, *, everything: bool) -> PlannedInput:
    """Return the documents of INPUT together with those of the base that stay beside them.

    Args:
        everything: Whether all stay but those of the same place, not only those that could not be read now.
    """
    if not everything and not planned.unread.records:
        return planned
    chunks = base.table("chunks", ["chunk_id", "document_id", "n_tokens"])
    of_document: dict[str, list[tuple[int, int]]] = {}
    keys, tokens = text_keys(chunks["chunk_id"]).tolist(), chunks["n_tokens"].to_pylist()
    for own, key, n_tokens in zip(chunks["document_id"].to_pylist(), keys, tokens, strict=True):
        of_document.setdefault(own, []).append((key, n_tokens))
    taken = {document.place for document in planned.documents.values()}
    documents = dict(planned.documents)
    for row in base.table("documents", ["document_id", "uri", "record"]).to_pylist():
        own, place = row["document_id"], f"{row['uri']}#{row['record']}"
        stays = everything or (row["uri"], row["record"]) in planned.unread
        if stays and own not in documents and place not in taken:
            documents[own] = PlannedDocument(place, tuple(of_document.get(own, ())))
    return replace(planned, documents=documents)


@dataclass(frozen=True)
class _Changes:
    """Documents and chunks that differ from the base.

    Attributes:
        chunks, tokens: whose text the base does not have.
        document_tokens: of all chunks of added and changed documents.
        removed_chunks: of removed documents and of former texts.
        removed_extraction: tokens that the extraction of removed documents has cost.
        removed_tokens: of the text of removed documents.
        removed_keys: of texts of removed documents that no chunk has any more.
    """

    counts: DocumentCounts
    chunks: int
    tokens: int
    document_tokens: int
    removed_chunks: int
    removed_extraction: int
    removed_tokens: int
    removed_keys: IntVector


def _changed(base: UpdateBase, planned: PlannedInput) -> _Changes:
    before = base.table("documents", ["document_id", "uri", "record"]).to_pylist()
    gone = {row["document_id"]: f"{row['uri']}#{row['record']}" for row in before}
    new = {own: document for own, document in planned.documents.items() if own not in gone}
    gone = {own: place for own, place in gone.items() if own not in planned.documents}
    replaced = {document.place for document in new.values()} & set(gone.values())
    n_changed = len(replaced)
    chunks = base.table("chunks", ["chunk_id", "document_id", "n_tokens"])
    keys = text_keys(chunks["chunk_id"])
    known = set(keys.tolist())
    added = [tokens for document in new.values() for key, tokens in document.chunks if key not in known]
    left = pc.is_in(chunks["document_id"], value_set=pa.array(list(gone), pa.string())).to_numpy()
    removed_ids = pa.array([own for own, place in gone.items() if place not in replaced], pa.string())
    removed = pc.is_in(chunks["document_id"], value_set=removed_ids).to_numpy()
    present = np.array([key for document in planned.documents.values() for key, _ in document.chunks], np.int64)
    return _Changes(
        DocumentCounts(len(new) - n_changed, n_changed, len(gone) - n_changed),
        len(added),
        sum(added),
        sum(tokens for document in new.values() for _, tokens in document.chunks),
        int(left.sum()),
        extraction_tokens(base, chunks.filter(pa.array(removed))),
        int(chunks["n_tokens"].to_numpy()[removed].sum()),
        np.setdiff1d(keys[removed], present),
    )


def _former(base: UpdateBase, planned: PlannedInput, config: Config) -> UpdateBase | None:
    """Return the former snapshot with the documents of INPUT, None without one."""
    if planned.unreadable:
        return None
    places = sorted((own, document.place) for own, document in planned.documents.items())

    def same(former: UpdateBase) -> bool:
        rows = former.table("documents", ["document_id", "uri", "record"]).to_pylist()
        return sorted((row["document_id"], f"{row['uri']}#{row['record']}") for row in rows) == places

    def opened(snapshot_id: str) -> UpdateBase | None:
        try:
            return open_configured(open_snapshot(base.snapshot.store, snapshot_id), config)[0]
        except SnapshotError:
            return None

    return former_snapshot(base, config, WantedDocuments(len(places), same), opened)


def _due_texts(base: UpdateBase, changed: _Changes, config: Config) -> Mapping[str, DueEstimate]:
    """Return summaries and reports that become due, with their tokens, before any bound."""
    counts = base.snapshot.manifest.counts
    replies = base.notes["reply_tokens"]
    per_chunk = counts["mentions"] / max(counts["chunks"], 1)
    moved = per_chunk * (changed.chunks + changed.removed_chunks)
    layers = base.table("layers").to_pylist()
    clustered = sum(int(row["n_entities"]) for row in layers if row["n_clusters"])
    per_entity = counts["clusters"] / max(clustered, 1)  # clusters that an entity is a member of
    here, summaries, tokens, total, touched = moved, 0.0, 0.0, 0, 0.0
    for row in layers:
        here = min(here, float(row["n_entities"]))
        touched += here
        n_clusters = int(row["n_clusters"] or 0)
        if not n_clusters:
            break
        size = row["n_entities"] * per_entity / n_clusters
        due = n_clusters * _share_due(here * per_entity / n_clusters, size, config.update.staleness)
        summaries, total = summaries + due, total + n_clusters
        tokens += due * (size * member_tokens(config, row["layer"]) + replies[0])
        here = due * SUMMARIES_PER_CLUSTER
    urgent = _deriving(base.table("summaries"), changed.removed_keys)
    if urgent > summaries:
        each = (
            tokens / summaries if summaries else config.clustering.target_size * member_tokens(config, 0) + replies[0]
        )
        summaries, tokens = float(urgent), urgent * each
    n_missing = base.snapshot.manifest.missing_reports  # they are not due
    n_reports = base.table("report_inputs").num_rows - n_missing
    n_communities = n_reports + n_missing
    size = counts["entities"] / max(n_communities, 1)
    reports = n_reports * _share_due(touched / max(n_communities, 1), size, config.update.staleness)
    if not n_missing:
        reports = max(reports, _deriving(base.table("report_inputs"), changed.removed_keys))
    report = min(size * REPORT_IN_PER_ENTITY, _REPORT_SHARE * config.communities.report_tokens) + replies[1]
    return {
        "summaries": DueEstimate(total, round(summaries), 0, int(tokens)),
        "reports": DueEstimate(n_reports, round(reports), 0, int(reports * report)),
    }


def _share_due(mean: float, size: float, staleness: float) -> float:
    """Return the share of groups that have enough changed members, if these are spread at random.

    Args:
        mean: changed members of a group, on average.
        size: members of a group, on average.
        staleness: share of changed members from which a group is due.

    >>> round(_share_due(1.0, 4, 0.2), 3), _share_due(0.0, 4, 0.2)
    (0.632, 0.0)
    """
    least = max(1, math.ceil(staleness * size))
    below = sum(math.exp(-mean + n * math.log(mean) - math.lgamma(n + 1)) for n in range(least)) if mean else 1.0
    return max(0.0, 1.0 - below)


def _deriving(state: pa.Table, removed_keys: IntVector) -> int:
    """Return the number of texts that derive from removed text."""
    sources = state["sources"].combine_chunks()
    hit = pc.is_in(sources.flatten(), value_set=pa.array(removed_keys, pa.int64()))
    return len(pc.unique(pc.list_parent_indices(sources).filter(hit)))


def _works(
    changed: _Changes,
    due: Mapping[str, DueEstimate],
    per_token: float,
    config: Config,
    prompts: Prompts,
    base: UpdateBase,
) -> Iterator[Work]:
    roles = config.llm.roles
    if changed.chunks:
        built = works_of_build(changed.chunks, changed.tokens, config, prompts)
        works = [work for work in built if work.stage in _EXTRACTION]
        guess = sum(work.input_tokens + work.output_tokens for work in works)
        scale = per_token * changed.tokens / guess if per_token else 1.0
        for work in works:
            yield Work(work.stage, work.target, work.calls, work.input_tokens * scale, work.output_tokens * scale)
    packs = {
        "summaries": (SUMMARIES_PER_CALL, config.pack_tokens / SUMMARY_PACK_TOKENS),
        "reports": (REPORTS_PER_CALL, config.pack_tokens / REPORT_PACK_TOKENS),
    }
    targets = {"summaries": ("summarise", roles.summarise), "reports": ("reports", roles.report)}
    for (name, (usual, room)), reply in zip(packs.items(), base.notes["reply_tokens"], strict=True):
        text, (stage, target) = due[name], targets[name]
        written = min(text.written * float(reply), float(text.tokens))
        calls = text.written / units_per_call(usual, room)
        yield Work(stage, target, calls, text.tokens - written, written)
    counts = base.snapshot.manifest.counts
    entities = changed.chunks * counts["entities"] / max(counts["chunks"], 1)
    batches = (entities + changed.chunks) / config.llm.endpoints[roles.embed].batch_size
    yield Work("embed", roles.embed, batches, changed.tokens + entities * TOKENS_PER_ENTITY, 0)
