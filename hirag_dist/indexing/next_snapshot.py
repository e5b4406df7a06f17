"""One update: a base, and the documents of now → the content of the next snapshot."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.compute.kernels import gpu_kernels
from hirag_dist.config.model import META_TYPES
from hirag_dist.core.retrieval.places import METADATA
from hirag_dist.core.row_changes import ChangedRows
from hirag_dist.core.vectors import taken
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.events import UsageBill
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.task import one_thread
from hirag_dist.indexing.access_labels import LabelledGraph, collect_label_provenance
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.base_layer import LayerEntities, WrittenBaseLayer, refused_units, write_base_layer
from hirag_dist.indexing.budget import (
    TextCounts,
    UpdateBudget,
    UpdateSettings,
    UpdateSummary,
    bill_rows,
    is_unbounded,
    least_extraction,
)
from hirag_dist.indexing.changed_documents import ChangedDocuments
from hirag_dist.indexing.communities import GraphTables, ReportedGraph, find_communities
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.former_snapshots import same_places
from hirag_dist.indexing.hierarchy import Hierarchy, layer_table, write_hierarchy
from hirag_dist.indexing.mentions import BaseLayer
from hirag_dist.indexing.publish import LabelProvenance, SnapshotContents, UpdateState, VectorRows
from hirag_dist.indexing.reports import UpdatedReports, update_reports
from hirag_dist.indexing.stages.communities import ENTITY_ORDER, RELATION_KINDS, KeepCommunities
from hirag_dist.indexing.stages.embed import EmbedChunks, vector_matrix
from hirag_dist.indexing.stages.read import ReadDocuments
from hirag_dist.schemas import DOCUMENTS, REJECTS, REPORT_INPUTS
from hirag_dist.storage.layout import DROPPED
from hirag_dist.storage.snapshot.manifest import UpdateNote
from hirag_dist.types import IntVector

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UpdateRequest:
    """What an update is asked for besides its documents.

    Attributes:
        refresh: whether debt is paid even if no document changed.
        max_tokens: maximum tokens of a refresh; None for no limit.
        all_reports: whether reports are written too that `communities.report_share` leaves out.
    """

    refresh: bool = False
    max_tokens: int | None = None
    all_reports: bool = False


def other_changes(context: BuildContext, base: UpdateBase, changed: ChangedDocuments) -> tuple[str, ...]:
    """Return the names of what differs from the base apart from texts and labels, which ids of documents tell."""
    columns = [name for name in DOCUMENTS.names if name != "text"]
    now = context.datasets.read(changed.documents.documents, columns).sort_by("document_id")
    before = base.table("documents", columns).cast(now.schema)
    letters = _units(context.datasets.read(changed.documents.rejects, ["stage", "unit_id"]))
    noted = [base.table(name).select(["stage", "unit_id"]) for name in ("rejects", DROPPED)]  # accepted losses too
    of_reading = {unit for table in noted for unit in _units(table) if unit[0] in (ReadDocuments.name, METADATA)}
    same = {
        "titles or names": now.equals(before.sort_by("document_id")),
        "places": same_places(context.datasets, changed.documents.places, base),
        "metadata": changed.documents.metadata.equals(base),
        "dead letters": letters == of_reading,
    }
    return tuple(name for name, equal in same.items() if not equal)


def _units(letters: pa.Table) -> set[tuple[str, str]]:
    return set(zip(letters["stage"].to_pylist(), letters["unit_id"].to_pylist(), strict=True))


def next_snapshot(
    context: BuildContext,
    base: UpdateBase,
    changed: ChangedDocuments,
    request: UpdateRequest,
    decisive: Mapping[str, Any],
    imported: BaseLayer | None = None,
) -> tuple[SnapshotContents, UpdateSummary, BuildContext]:
    """Return the content of the snapshot after a change of documents: all of it, where the base is nothing.

    With it come what the update did, and the context with the kernels' name.

    Args:
        decisive: `Build.decisive`, for the next update.
        imported: layer 0 that another tool extracted, in the place of that of the documents.
    """
    one_thread()  # the bits of products must not depend on whether a task ran here before
    replaced = _replaced_texts(base, changed)
    settings = _settings(context, base, changed, request)
    budget = settings.budget
    layer = write_base_layer(context, base, changed, settings, imported)
    chunk_vectors, refused_chunks = _chunk_vectors(context, base, changed)
    context = _with_kernels(context)
    hierarchy = write_hierarchy(context, base, layer, changed.documents.chunks, settings)
    graph = find_communities(context, base, layer, hierarchy, base.note.changed_since_detection)
    reports = _reports(context, base, layer, graph, settings)
    summary = UpdateSummary(
        None if base.is_nothing else base.snapshot_id,
        settings.number,
        changed.counts,
        layer.counts,
        hierarchy.counts,
        reports.counts,
        budget.extraction,
        budget.spent,
        None if np.isinf(budget.total) else int(budget.total),
        other_changes=() if changed.counts else other_changes(context, base, changed),
    )
    state = None
    if layer.mentions is not None and layer.relation_mentions is not None:
        stats = context.datasets.read(graph.detected.stats).to_pylist()[0]
        note = update_note(context.runner, base, summary, stats["changed_since_cold"], decisive).model_copy(
            update={
                "label_field": context.config.reading.label_field or base.note.label_field,
                "replaced": _still_used(replaced, hierarchy.state.table, reports.state.table, layer.debt),
                **(_averages(context, base, summary, hierarchy, changed.documents.chunks) if base.is_nothing else {}),
            }
        )
        state = UpdateState(
            layer.mentions, layer.relation_mentions, layer.costs, layer.debt, hierarchy.state, reports.state, note
        )
    labelled = None
    rejects = changed.documents.rejects + layer.rejects + hierarchy.rejects + reports.rejects + refused_chunks
    if settings.has_provenance:
        labelled = _label_provenance(context, changed, layer, hierarchy, graph.tables)
        rejects += Dataset(REJECTS) if labelled is None else labelled.rejects
    contents = SnapshotContents(
        documents=changed.documents.documents,
        chunks=changed.documents.chunks,
        entities=ChangedRows(graph.tables.entities, _entity_origin(base, hierarchy.layers)),
        relations=hierarchy.relations,
        clusters=hierarchy.clusters,
        layers=layer_table(hierarchy.records),
        communities=reports.communities or graph.detected.communities,
        reports=reports.reports,
        rejects=sum((each.rejects for each in hierarchy.layers), rejects),
        entity_vectors=VectorRows(graph.tables.entities["entity_id"], [each.vectors for each in hierarchy.layers]),
        chunk_vectors=chunk_vectors,
        aliases=layer.aliases,
        claims=layer.claims,
        places=changed.documents.places,
        labelled=labelled,
        metadata=changed.documents.metadata,
        state=state,
        cut_ids=layer.cut_ids,
        graph=graph.links,
    )
    return contents, summary, context


def _entity_origin(base: UpdateBase, layers: Sequence[LayerEntities]) -> IntVector:
    """Return (n_entities,) the base's row of each entity of all layers that is as it was, else −1."""
    found = [np.zeros(0, np.int64)]
    for number, layer in enumerate(layers):
        is_same = (layer.places >= 0) & ~np.isin(layer.places, layer.gone)
        found.append(np.where(is_same, base.layer_rows("entities", number)[1] + layer.places, -1))
    return np.concatenate(found)


def _with_kernels(context: BuildContext) -> BuildContext:
    """Return the context with the kernels' name, which workers with a GPU may have to give.

    They are asked before the first stage whose key names the kernels and not at the start of the build: such a worker
    may be a node that has to be provisioned, and would idle while models are called.
    """
    if context.models.kernels:
        return context
    return replace(context, models=replace(context.models, kernels=context.runner.ask_kernels(gpu_kernels, "gpu")))


def _reports(
    context: BuildContext, base: UpdateBase, layer: WrittenBaseLayer, graph: ReportedGraph, settings: UpdateSettings
) -> UpdatedReports:
    """Return the reports of all communities; imported communities and reports are kept as they are."""
    if layer.imported is None:
        return update_reports(context, base, graph.material, graph.outlines, graph.lost, settings)
    put, tables = context.datasets.put, graph.tables
    kept = context.runner.run(
        KeepCommunities(),
        "imported communities",
        communities=layer.imported.communities,
        reports=layer.imported.reports,
        entities=put("entity_order", tables.entities.select(ENTITY_ORDER.names)),
        relations=put("relation_kinds", tables.relations.select(RELATION_KINDS.names)),
    )
    no_inputs = ChangedRows(REPORT_INPUTS.empty_table(), np.zeros(0, np.int64))
    return UpdatedReports(kept.reports, no_inputs, Dataset(REJECTS), TextCounts(), kept.communities)


def _settings(
    context: BuildContext, base: UpdateBase, changed: ChangedDocuments, request: UpdateRequest
) -> UpdateSettings:
    labelled = _has_labels(context.datasets.read(changed.documents.documents, ["labels"]))
    return UpdateSettings(
        budget=_budget(context, base, changed, request),
        number=base.number + 1,
        staleness=context.config.update.staleness,
        removed_keys=changed.removed_keys,
        labelled=labelled or _has_labels(base.table("documents", ["labels"])),
        has_provenance=labelled or bool(changed.documents.metadata),
        reply_tokens=base.note.reply_tokens,
        all_reports=request.all_reports,
        is_refresh=request.refresh,
    )


def _has_labels(documents: pa.Table) -> bool:
    return bool(pc.sum(pc.list_value_length(documents["labels"])).as_py())


def _budget(context: BuildContext, base: UpdateBase, changed: ChangedDocuments, request: UpdateRequest) -> UpdateBudget:
    if base.is_nothing:
        return UpdateBudget(context.runner.bill, None)
    new_tokens = pc.sum(context.datasets.read(changed.new_chunks, ["n_tokens"])["n_tokens"]).as_py() or 0
    return UpdateBudget(
        context.runner.bill,
        None if request.refresh or is_unbounded(context.config) else context.config.update.max_ratio,
        changed.removed_extraction,
        request.max_tokens,
        least_extraction(context.config.extraction.method, new_tokens + changed.removed_tokens),
    )


def _replaced_texts(base: UpdateBase, changed: ChangedDocuments) -> dict[str, tuple[int, ...]]:
    """Return the keys of former texts of documents, by place, of this update and of earlier ones."""
    found = {place: set(keys) for place, keys in base.note.replaced.items()}
    for place, keys in changed.replaced_keys.items():
        found.setdefault(place, set()).update(keys)
    return {place: tuple(sorted(keys)) for place, keys in found.items()}


def _still_used(replaced: Mapping[str, tuple[int, ...]], *states: pa.Table) -> dict[str, tuple[int, ...]]:
    """Return the former texts that a description, summary or report still derives from, by the `sources` of states."""
    wanted = pa.array([key for keys in replaced.values() for key in keys], pa.int64())
    used: set[int] = set()
    for state in states:
        sources = pc.unique(pc.list_flatten(state["sources"]))
        used.update(sources.filter(pc.is_in(sources, value_set=wanted)).to_pylist())
    kept = {place: tuple(key for key in replaced[place] if key in used) for place in sorted(replaced)}
    return {place: keys for place, keys in kept.items() if keys}


def _averages(
    context: BuildContext, base: UpdateBase, summary: UpdateSummary, hierarchy: Hierarchy, chunks: Dataset
) -> dict[str, Any]:
    """Return what a build from nothing notes for updates: its meta types, and the averages that they estimate by."""
    bill = context.runner.bill
    n_tokens = pc.sum(context.datasets.read(chunks, ["n_tokens"])["n_tokens"]).as_py() or 1
    configured = context.config.meta_types
    summary_tokens = _reply_tokens(bill, "summarise layer", hierarchy.state.table.num_rows, base.note.reply_tokens[0])
    report_tokens = _reply_tokens(bill, "reports", summary.reports.written, base.note.reply_tokens[1])
    return {
        "meta_types": tuple(hierarchy.meta_types or (META_TYPES if configured == "generate" else configured)),
        "extraction_per_token": summary.extraction_tokens / n_tokens,
        "reply_tokens": (summary_tokens, report_tokens),
    }


def update_note(
    runner: StageRunner,
    base: UpdateBase,
    summary: UpdateSummary,
    changed_since_detection: int,
    decisive: Mapping[str, Any],
) -> UpdateNote:
    """Return the note of the manifest after an update.

    Args:
        changed_since_detection: entities that changed since communities were last detected without a base.
    """
    bill = runner.bill
    if bill.earlier is None and not base.is_nothing:
        bill.earlier = bill_rows(base.snapshot)
    paid = None if base.is_nothing and not runner.retry else bill.paid()
    return UpdateNote(
        number=summary.number,
        base=summary.base,
        documents=asdict(summary.documents),
        other_changes=summary.other_changes,
        debt=summary.debt(),
        descriptions=vars(summary.descriptions),
        summaries=vars(summary.summaries),
        reports=vars(summary.reports),
        cost=summary.cost(),
        decisive=decisive,
        changed_since_detection=changed_since_detection,
        meta_types=base.note.meta_types,
        extraction_per_token=base.note.extraction_per_token,
        reply_tokens=base.note.reply_tokens,
        clustered_with=base.note.clustered_with,
        label_field=base.note.label_field,
        bill=None if paid is None else tuple(paid),
    )


def _reply_tokens(bill: UsageBill, prefix: str, n_units: int, default: float) -> float:
    """Return the output tokens of a unit, on average."""
    meters = [meter for label, meter in bill.by_stage.items() if label.startswith(prefix)]
    total = sum(use.output_tokens for meter in meters for use in meter.uses.values())
    return round(total / n_units, 1) if n_units and total else default


def _label_provenance(
    context: BuildContext, changed: ChangedDocuments, layer: WrittenBaseLayer, hierarchy: Hierarchy, graph: GraphTables
) -> LabelProvenance | None:
    relations = context.datasets.put("all_relations", graph.relations)
    mentions = layer.datasets(context)
    entities = context.datasets.put("base_entities", layer.entities.table)
    labelled = LabelledGraph(entities, relations, mentions, layer.aliases, hierarchy.mentions)
    return collect_label_provenance(context, changed.documents, labelled)


def _chunk_vectors(
    context: BuildContext, base: UpdateBase, changed: ChangedDocuments
) -> tuple[VectorRows | Dataset, Dataset]:
    """Return the vectors of all chunks, and dead letters: the base's, and those of new chunks and of refused ones."""
    models, datasets = context.models, context.datasets
    embed = EmbedChunks(models.embedder, models.dim)
    chunks = changed.new_chunks
    if base.is_nothing:
        embedded = context.runner.run_tolerant(embed, "chunk vectors", chunks=chunks)
        return embedded.vectors, embedded.rejects
    before = base.table("chunks", ["chunk_id"])["chunk_id"]
    refused = refused_units(base, EmbedChunks.name)
    if len(refused):
        present = datasets.read(changed.documents.chunks)
        kept = present.filter(pc.is_in(present["chunk_id"], value_set=refused))
        chunks += datasets.put("refused_chunks", kept.filter(pc.is_in(kept["chunk_id"], value_set=before)))
    embedded = context.runner.run_tolerant(embed, "chunk vectors", chunks=chunks)
    found = datasets.read(embedded.vectors)
    left = np.ones(len(before), np.bool_)
    if len(refused):
        left = pc.invert(pc.is_in(before, value_set=found["id"])).to_numpy()
    ids = pa.chunked_array([*before.filter(pa.array(left)).chunks, *found["id"].chunks], pa.string())
    own = taken(base.snapshot.chunk_vectors, np.flatnonzero(left))
    return VectorRows(ids, [own, vector_matrix(found, models.dim)]), embedded.rejects
