"""One update: a base, and the documents of now → the content of the next snapshot."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.config.model import META_TYPES
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.errors import InputError
from hirag_dist.execution.task import one_thread
from hirag_dist.execution.usage_bill import UsageBill
from hirag_dist.indexing.access_labels import collect_label_provenance
from hirag_dist.indexing.communities import CommunityReports, detect_communities, outline_reports
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ChunkedDocuments, ReadInput
from hirag_dist.indexing.layers import BaseLayer, GraphMentions, Hierarchy, layer_table
from hirag_dist.indexing.publish import SnapshotContents, UpdateState, VectorRows
from hirag_dist.indexing.stages.communities import CHANGED_ENTITIES
from hirag_dist.indexing.stages.embed import EmbedChunks, vector_matrix
from hirag_dist.indexing.update.base import UpdateBase
from hirag_dist.indexing.update.base_layer import LayerEntities, update_base_layer
from hirag_dist.indexing.update.budget import UpdateBudget, chat_tokens, is_unbounded
from hirag_dist.indexing.update.documents import ChangedDocuments, changed_documents
from hirag_dist.indexing.update.hierarchy import UpdateSettings, fresh_state, update_hierarchy
from hirag_dist.indexing.update.report_material import report_material
from hirag_dist.indexing.update.reports import fresh_report_state, update_reports
from hirag_dist.indexing.update.summary import UpdateSummary
from hirag_dist.schemas import COMMUNITIES
from hirag_dist.types import FloatMatrix

logger = logging.getLogger(__name__)
_REPLY_TOKENS = (350.0, 600.0)  # of a summary and of a report, where a build gives no average


@dataclass(frozen=True)
class UpdateOutcome:
    """Content of the next snapshot, and what the update did."""

    contents: SnapshotContents
    summary: UpdateSummary


@dataclass(frozen=True)
class UpdateRequest:
    """Request of an update.

    Attributes:
        found: the documents of now, and dead letters of reading.
        refresh: pay debt even if no document changed.
        max_tokens: budget of a refresh; None for no limit.
    """

    found: ReadInput
    refresh: bool = False
    max_tokens: int | None = None


def find_changes(context: BuildContext, base: UpdateBase, found: ReadInput) -> ChangedDocuments:
    """Return how the documents of now differ from the base's.

    Raises:
        InputError: nothing would be left.
    """
    changed = changed_documents(context, base, found.documents, found.rejects)
    if changed.documents.chunks.rows == 0:
        raise InputError("no document with text would be left: an index needs one; to remove all, delete the index")
    return changed


def is_unchanged(context: BuildContext, base: UpdateBase, changed: ChangedDocuments) -> bool:
    """Return whether the documents of now are the base's, in every column, and none is refused in another way."""
    now = context.datasets.read(changed.documents.documents).sort_by("document_id")
    before = base.table("documents").cast(now.schema)
    return not changed.counts and now.equals(before.sort_by("document_id"))


def update_contents(
    context: BuildContext,
    base: UpdateBase,
    changed: ChangedDocuments,
    request: UpdateRequest,
    decisive: Mapping[str, Any],
) -> UpdateOutcome:
    """Return the content of the snapshot after a change of documents.

    Args:
        changed: as `find_changes` gave it.
        decisive: `Build.decisive`, for the next update.

    Raises:
        StageFailed: too many dead letters in a stage.
    """
    one_thread()  # the bits of products must not depend on whether a task ran here before
    datasets, notes = context.datasets, base.notes
    replaced = _replaced_texts(base, changed)
    settings, budget = _settings(context, base, changed, replaced), _budget(context, base, changed, request)
    layer, entities = update_base_layer(context, base, changed)
    meta_types = tuple(notes["meta_types"])
    updated = update_hierarchy(context, base, layer, entities, meta_types, budget, settings)
    hierarchy = updated.hierarchy
    moved = _changed_entities(context, base, hierarchy)
    detected = detect_communities(
        context,
        hierarchy,
        base.dataset("communities", COMMUNITIES),
        datasets.put("changed_entities", moved),
        int(notes["changed_since_detection"]),
    )
    outline = outline_reports(context, hierarchy.entities, hierarchy.relations, detected.communities)
    material = report_material(context, hierarchy, updated.sources, detected.communities, outline)
    reports = update_reports(context, base, material, outline, budget, settings)
    summary = UpdateSummary(
        base.snapshot_id,
        settings.number,
        changed.counts,
        updated.counts,
        reports.counts,
        budget.extraction,
        budget.spent,
        None if np.isinf(budget.total) else int(budget.total),
    )
    stats = datasets.read(detected.stats).to_pylist()[0]
    state = UpdateState(
        _mentions(layer).entities,
        _mentions(layer).relations,
        _mentions(layer).costs,
        updated.state,
        reports.state,
        _notes(summary, notes, stats, decisive) | {"replaced": _still_used(replaced, updated.state, reports.state)},
    )
    return UpdateOutcome(
        SnapshotContents(
            documents=changed.documents.documents,
            chunks=changed.documents.chunks,
            entities=hierarchy.entities,
            relations=hierarchy.relations,
            clusters=hierarchy.clusters,
            layers=layer_table(hierarchy.records),
            communities=detected.communities,
            reports=reports.reports,
            rejects=changed.documents.rejects + layer.rejects + hierarchy.rejects + reports.rejects,
            entity_vectors=_stacked(updated.layers),
            chunk_vectors=_chunk_vectors(context, base, changed),
            aliases=layer.aliases,
            claims=layer.claims,
            labelled=collect_label_provenance(context, changed.documents, hierarchy),
            state=state,
            cut_ids=layer.cut_ids,
        ),
        summary,
    )


def fresh_update_state(
    context: BuildContext,
    hierarchy: Hierarchy,
    found: CommunityReports,
    documents: ChunkedDocuments,
    decisive: Mapping[str, Any],
) -> UpdateState | None:
    """Return the state that a first update starts from, of an index built from nothing; None for an imported graph."""
    if hierarchy.base.mentions is None or found.outline is None:
        return None
    summaries, sources = fresh_state(context, hierarchy)
    material = report_material(context, hierarchy, sources, found.communities, found.outline)
    bill = context.runner.bill
    n_tokens = pc.sum(context.datasets.read(documents.chunks, ["n_tokens"])["n_tokens"]).as_py() or 1
    n_reports = int(pc.sum(pc.equal(context.datasets.read(found.reports, ["origin"])["origin"], "model")).as_py() or 0)
    extraction = sum(chat_tokens(bill, label) for label in ("extract", "claims"))
    notes: dict[str, Any] = {
        "number": 0,
        "base": None,
        "documents": {"added": documents.documents.rows, "changed": 0, "removed": 0},
        "meta_types": list(hierarchy.meta_types or _configured_types(context)),
        "changed_since_detection": 0,
        "debt": {name: {"units": 0, "stand_ins": 0, "tokens": 0} for name in ("summaries", "reports")},
        "cost": {
            "extraction_tokens": extraction,
            "spent_tokens": sum(chat_tokens(bill, label) for label in bill.by_stage),
            "budget_tokens": None,
        },
        "decisive": decisive,
        "extraction_per_token": extraction / n_tokens,
        "reply_tokens": [
            _reply_tokens(bill, "summarise layer", summaries.num_rows, _REPLY_TOKENS[0]),
            _reply_tokens(bill, "reports", n_reports, _REPLY_TOKENS[1]),
        ],
    }
    mentions = hierarchy.base.mentions
    reports = fresh_report_state(material)
    return UpdateState(mentions.entities, mentions.relations, mentions.costs, summaries, reports, notes)


def _settings(
    context: BuildContext, base: UpdateBase, changed: ChangedDocuments, replaced: Mapping[str, list[int]]
) -> UpdateSettings:
    config = context.config.update
    removed = set(changed.removed_keys.tolist())
    if config.purge_replaced:
        removed.update(key for keys in replaced.values() for key in keys)
    labels = context.datasets.read(changed.documents.documents, ["labels"])["labels"]
    summary, report = base.notes["reply_tokens"]
    return UpdateSettings(
        number=base.number + 1,
        staleness=config.staleness,
        removed_keys=np.array(sorted(removed), np.int64),
        labelled=bool(pc.sum(pc.list_value_length(labels)).as_py()),
        reply_tokens=(float(summary), float(report)),
    )


def _budget(context: BuildContext, base: UpdateBase, changed: ChangedDocuments, request: UpdateRequest) -> UpdateBudget:
    return UpdateBudget(
        context.runner.bill,
        None if request.refresh or is_unbounded(context.config) else context.config.update.max_ratio,
        changed.removed_extraction,
        request.max_tokens,
    )


def _replaced_texts(base: UpdateBase, changed: ChangedDocuments) -> dict[str, list[int]]:
    """Return the keys of former texts of documents, by place, of this update and of earlier ones."""
    found = {place: set(keys) for place, keys in base.notes.get("replaced", {}).items()}
    for place, keys in changed.replaced_keys.items():
        found.setdefault(place, set()).update(keys)
    return {place: sorted(keys) for place, keys in found.items()}


def _still_used(replaced: Mapping[str, list[int]], *states: pa.Table) -> dict[str, list[int]]:
    """Return the former texts that a summary or report still derives from."""
    wanted = pa.array([key for keys in replaced.values() for key in keys], pa.int64())
    used: set[int] = set()
    for state in states:
        sources = pc.unique(pc.list_flatten(state["sources"]))
        used.update(sources.filter(pc.is_in(sources, value_set=wanted)).to_pylist())
    kept = {place: [key for key in replaced[place] if key in used] for place in sorted(replaced)}
    return {place: keys for place, keys in kept.items() if keys}


def _notes(
    summary: UpdateSummary,
    before: Mapping[str, Any],
    stats: Mapping[str, Any],
    decisive: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "number": summary.number,
        "base": summary.base,
        "documents": {
            "added": summary.documents.added,
            "changed": summary.documents.changed,
            "removed": summary.documents.removed,
        },
        "meta_types": before["meta_types"],
        "changed_since_detection": stats["changed_since_cold"],
        "debt": summary.debt(),
        "summaries": vars(summary.summaries),
        "reports": vars(summary.reports),
        "cost": summary.cost(),
        "decisive": decisive,
        "extraction_per_token": before["extraction_per_token"],
        "reply_tokens": before["reply_tokens"],
    }


def _reply_tokens(bill: UsageBill, prefix: str, n_units: int, default: float) -> float:
    """Return the output tokens of a unit, on average."""
    meters = [meter for label, meter in bill.by_stage.items() if label.startswith(prefix)]
    total = sum(use.output_tokens for meter in meters for use in meter.uses.values())
    return round(total / n_units, 1) if n_units and total else default


def _configured_types(context: BuildContext) -> tuple[str, ...]:
    configured = context.config.meta_types
    return META_TYPES if configured == "generate" else tuple(configured)


def _mentions(layer: BaseLayer) -> GraphMentions:
    assert layer.mentions is not None
    return layer.mentions


def _stacked(layers: tuple[LayerEntities, ...]) -> VectorRows:
    ids = pa.chunked_array([chunk for layer in layers for chunk in layer.table["entity_id"].chunks], pa.string())
    matrix = layers[0].vectors if len(layers) == 1 else np.concatenate([layer.vectors for layer in layers])
    return VectorRows(ids, matrix)


def _chunk_vectors(context: BuildContext, base: UpdateBase, changed: ChangedDocuments) -> VectorRows:
    """Return the vectors of all chunks: the base's, and those of new chunks."""
    models, datasets = context.models, context.datasets
    embed = EmbedChunks(models.embedder, models.dim)
    found = datasets.read(context.runner.run(embed, "chunk vectors", chunks=changed.new_chunks).vectors)
    before = base.table("chunks", ["chunk_id"])["chunk_id"]
    ids = pa.chunked_array([*before.chunks, *found["id"].chunks], pa.string())
    matrix: FloatMatrix = np.asarray(base.snapshot.chunk_vectors)
    if found.num_rows:
        matrix = np.concatenate([matrix, vector_matrix(found, models.dim)])
    return VectorRows(ids, matrix)


def _changed_entities(context: BuildContext, base: UpdateBase, hierarchy: Hierarchy) -> pa.Table:
    """Return CHANGED_ENTITIES: ends of relations that came, went or have another weight, and new entities."""
    columns = ["relation_id", "source_id", "target_id", "weight"]
    before = base.table("relations", columns)
    now = context.datasets.read(hierarchy.relations, columns)
    place = rows_of(now["relation_id"], before["relation_id"])
    known = place >= 0
    same = np.zeros(len(place), bool)
    same[known] = now["weight"].to_numpy()[known] == before["weight"].to_numpy()[place[known]]
    kept = np.zeros(before.num_rows, bool)
    kept[place[known]] = True
    ids = context.datasets.read(hierarchy.entities, ["entity_id"])["entity_id"]
    is_new = pc.invert(pc.is_in(ids, value_set=base.table("entities", ["entity_id"])["entity_id"].combine_chunks()))
    some, gone = now.filter(pa.array(~same)), before.filter(pa.array(~kept))
    ends = [table[side] for table in (some, gone) for side in ("source_id", "target_id")]
    found = pc.unique(
        pa.chunked_array([chunk for column in (*ends, ids.filter(is_new)) for chunk in column.chunks], pa.string())
    )
    found = found.filter(pc.is_in(found, value_set=ids.combine_chunks())).sort()
    return pa.table([found], schema=CHANGED_ENTITIES)
