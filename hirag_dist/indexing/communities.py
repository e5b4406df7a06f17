"""The graph of all layers, its communities, and the material of their reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.graph.csr import build_graph, relation_ends, rows_of
from hirag_dist.core.reports.selection import ReportOutlines, report_outlines
from hirag_dist.core.row_changes import rows_with
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.base_layer import WrittenBaseLayer
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.hierarchy import Hierarchy
from hirag_dist.indexing.report_material import (
    CommunityMaterial,
    GraphTables,
    KnownDigests,
    report_material,
    stacked_sets,
)
from hirag_dist.indexing.reports import LostIds
from hirag_dist.indexing.stages.communities import CHANGED_ENTITIES, ENTITY_ORDER, DetectCommunities, adjacency
from hirag_dist.indexing.written import Inputs
from hirag_dist.schemas import COMMUNITIES
from hirag_dist.types import CsrGraph, IntVector

MAX_TREE_REPORTS = 256  # in one task, which holds them in memory
_MIN_LINE_TOKENS = 6  # of an entity or relation in a prompt, which bounds how many can be shown


@dataclass(frozen=True)
class ReportedGraph:
    """The graph after a change.

    Attributes:
        lost: ids that the index of now has not.
    """

    tables: GraphTables
    links: CsrGraph
    detected: DetectCommunities.Outputs
    outlines: ReportOutlines
    material: CommunityMaterial
    lost: LostIds


def find_communities(
    context: BuildContext,
    base: UpdateBase,
    layer: WrittenBaseLayer,
    hierarchy: Hierarchy,
    changed_before: int,
) -> ReportedGraph:
    """Return the graph of all layers with its communities. The base's relations are released.

    Args:
        layer: 0, of now.
        changed_before: entities that earlier updates changed since communities were last detected without a base.
    """
    put = context.datasets.put
    entities = base.joined([each.table for each in hierarchy.layers])
    tables = GraphTables(entities, hierarchy.relations.table, context.datasets.read(layer.claims))
    ids = tables.entities["entity_id"]
    gone = base.table("relations").take(pa.array(hierarchy.relation_changes.gone))
    base.release("relations")
    ends = _mapped_ends(base, *relation_ends(ids, tables.relations))
    links = _mapped_graph(base, build_graph(ids, tables.relations, ends))
    order = put("entity_order", tables.entities.select(ENTITY_ORDER.names))
    if base.is_nothing:
        detected = detect_communities(context, order, links)
    else:
        changed = put("changed_entities", _changed_entities(hierarchy, gone))
        previous = base.dataset("communities", COMMUNITIES)
        detected = detect_communities(context, order, links, previous, changed, changed_before)
    communities = base.joined([context.datasets.read(detected.communities).cast(COMMUNITIES)])
    max_lines = context.config.communities.report_tokens // _MIN_LINE_TOKENS  # entities, and relations, of a report
    degree = np.diff(links.indptr)
    outlines = report_outlines(
        communities, ids, tables.relations, degree, max_lines, MAX_TREE_REPORTS, ends, base.mapped
    )
    outlines = replace(
        outlines,
        entity_rows=base.mapped_sets(outlines.entity_rows),
        relation_rows=base.mapped_sets(outlines.relation_rows),
    )
    del ends
    known = None
    if not base.is_nothing:
        known = KnownDigests(
            base.table("report_inputs"),
            bool(base.snapshot.manifest.counts.get("claims") or tables.claims.num_rows),
            np.concatenate([each.changed for each in hierarchy.layers]),
            hierarchy.relations.origin < 0,
        )
    sources = base.mapped_sets(stacked_sets(hierarchy.sources))
    material = _mapped_material(base, report_material(tables, sources, communities, outlines, known))
    return ReportedGraph(tables, links, detected, outlines, material, _lost_ids(base, hierarchy, gone))


def _mapped_ends(base: UpdateBase, source: IntVector, target: IntVector) -> tuple[IntVector, IntVector]:
    return base.mapped_arrays(source)[0], base.mapped_arrays(target)[0]


def _mapped_graph(base: UpdateBase, graph: CsrGraph) -> CsrGraph:
    return CsrGraph(*base.mapped_arrays(graph.indptr, graph.indices, graph.weights, graph.relation_rows))


def _mapped_material(base: UpdateBase, material: CommunityMaterial) -> CommunityMaterial:
    inputs, written = material.inputs, material.written
    ids = base.joined([pa.table([material.ids], names=["id"])])["id"]
    return replace(
        material,
        inputs=Inputs(*base.mapped_arrays(inputs.indptr, inputs.ids, inputs.digests)),
        ids=ids.chunk(0) if ids.num_chunks == 1 else material.ids,
        texts=base.mapped_arrays(material.texts)[0],
        written=Inputs(*base.mapped_arrays(written.indptr, written.ids, written.digests)),
    )


def _lost_ids(base: UpdateBase, hierarchy: Hierarchy, relations: pa.Table) -> LostIds:
    """Return the ids that the index of now has not.

    Args:
        relations: Relations of the base, those that are gone or were merged again.
    """
    now = hierarchy.relation_changes.new["relation_id"].combine_chunks()
    kept = np.zeros(base.table("entities").num_rows, bool)
    for number, layer in enumerate(hierarchy.layers):
        first = base.layer_rows("entities", number)[1]
        kept[first + layer.places[layer.places >= 0]] = True
    return LostIds(
        base.table("entities", ["entity_id"])["entity_id"].filter(pa.array(~kept)).combine_chunks(),
        relations["relation_id"].filter(pc.invert(pc.is_in(relations["relation_id"], value_set=now))).combine_chunks(),
    )


def _changed_entities(hierarchy: Hierarchy, gone: pa.Table) -> pa.Table:
    """Return CHANGED_ENTITIES: ends of relations that came, went or have another weight, and new entities.

    Args:
        gone: RELATIONS of the base, those that are gone or were merged again.
    """
    now = hierarchy.relation_changes.new
    place = rows_of(now["relation_id"], gone["relation_id"])
    known = place >= 0
    same = np.zeros(len(place), bool)
    same[known] = now["weight"].to_numpy()[known] == gone["weight"].to_numpy()[place[known]]
    kept = np.zeros(gone.num_rows, bool)
    kept[place[known]] = True
    some, lost = now.filter(pa.array(~same)), gone.filter(pa.array(~kept))
    ends = [table[side] for table in (some, lost) for side in ("source_id", "target_id")]
    new = [layer.table["entity_id"].filter(pa.array(layer.places < 0)) for layer in hierarchy.layers]
    found = pc.unique(pa.chunked_array([chunk for column in (*ends, *new) for chunk in column.chunks], pa.string()))
    ids = [layer.table["entity_id"] for layer in hierarchy.layers]
    there = np.zeros(len(found), bool)
    for own in ids:
        at = rows_with(own, found)
        there |= pc.is_in(found, value_set=own.take(pa.array(at)).combine_chunks()).to_numpy(zero_copy_only=False)
    return pa.table([found.filter(pa.array(there)).sort()], schema=CHANGED_ENTITIES)


def detect_communities(
    context: BuildContext,
    entities: Dataset,
    graph: CsrGraph,
    previous: Dataset | None = None,
    changed: Dataset | None = None,
    changed_before: int = 0,
) -> DetectCommunities.Outputs:
    """Return the communities of all layers.

    Args:
        entities: ENTITY_ORDER of all layers, in the order of the graph's rows.
        previous: COMMUNITIES of the base of an update.
        changed: CHANGED_ENTITIES since the base: new ones, those whose relations changed, and those that were related
            to removed ones.
        changed_before: entities that earlier updates changed since communities were last detected without a base.
    """
    config, put = context.config.communities, context.datasets.put
    stage = DetectCommunities(
        config.max_size, config.resolution, context.config.seed, context.models.kernels, changed_before
    )
    entries, degrees = adjacency(graph)
    return context.runner.run(
        stage,
        "communities",
        entities=entities,
        adjacency=put("adjacency", entries),
        degrees=put("degrees", degrees),
        previous=previous,
        changed=changed,
    )
