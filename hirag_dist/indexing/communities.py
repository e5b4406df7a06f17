"""The graph of all layers, its communities, the material of their reports, and the texts that it derives from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.communities import membership
from hirag_dist.core.graph.csr import build_graph, relation_ends, rows_of
from hirag_dist.core.key_sets import KeySets
from hirag_dist.core.reports.selection import ReportOutlines, report_outlines
from hirag_dist.core.row_changes import one_array, rows_with
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.base_layer import WrittenBaseLayer
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.hierarchy import Hierarchy
from hirag_dist.indexing.stages.communities import CHANGED_ENTITIES, ENTITY_ORDER, DetectCommunities, adjacency
from hirag_dist.indexing.written import Inputs, digests_of, written_inputs
from hirag_dist.schemas import COMMUNITIES, REPORT_INPUTS
from hirag_dist.types import CsrGraph, IntVector

DESCRIPTION_CHARS = 480  # characters of an entity or relation in the prompt of a report
_KINDS = pa.array(["extracted", "summary", "same_name"])  # the order of relations among the inputs of a report
_SUMMARY = 1
_BLOCK_ROWS = 65_536  # texts that are Python objects at a time


@dataclass(frozen=True)
class GraphTables:
    """The graph that reports are about: ENTITIES sorted by (layer, id), RELATIONS sorted by id, and CLAIMS."""

    entities: pa.Table
    relations: pa.Table
    claims: pa.Table


@dataclass(frozen=True)
class KnownDigests:
    """Reports of the base, for the digests of inputs that did not change.

    Attributes:
        state: REPORT_INPUTS.
        any_claims: whether the base or the index of now has claims, which are shown with the entities.
        changed_entities: (n_entities,) bool, entities of now that are new or shown in other words.
        changed_relations: (n_relations,) bool, relations of now that are new or merged again.
    """

    state: pa.Table
    any_claims: bool
    changed_entities: NDArray[np.bool_]
    changed_relations: NDArray[np.bool_]


@dataclass(frozen=True)
class CommunityMaterial:
    """All that reports may show, and what each community's report does.

    Attributes:
        rows: the outlines of all communities, below and above trees.
        is_above: (n_communities,) bool, by row of `rows`.
        inputs: by row of `rows`; ids are rows of `ids`.
        ids: ids of the entities and relations that any report shows.
        texts: (n_ids,) the row of each in `graph.entities`, or `graph.entities.num_rows` plus that in
            `graph.relations`.
        written: the inputs that the base's reports were written from, by row of `KnownDigests.state`; empty without.
        communities: COMMUNITIES of now.
        entity_sources: texts that each entity derives from.
    """

    graph: GraphTables
    rows: pa.Table
    is_above: NDArray[np.bool_]
    inputs: Inputs
    ids: pa.Array
    texts: IntVector
    written: Inputs
    communities: pa.Table
    entity_sources: KeySets

    def sources(self, rows: IntVector) -> KeySets:
        """Return the texts that the members of some communities derive from."""
        wanted = self.rows["community_id"].take(pa.array(rows))
        found = self.communities.take(pa.array(rows_of(wanted, self.communities["community_id"])))
        indptr, entities = membership(found, self.graph.entities["entity_id"])
        members = KeySets(indptr, entities.astype(np.int64))
        return self.entity_sources.unions(members.owners, members.keys, len(rows))

    def characters(self, rows: IntVector) -> tuple[IntVector, IntVector]:
        """Return the place in `rows` of each input of some reports, and the length of its text."""
        inputs = self.inputs.take(rows)
        shown, which = np.unique(inputs.ids, return_inverse=True)
        lengths = np.array([len(text) for text in _descriptions(self.graph, self.texts[shown])], np.int64)
        return inputs.owners, lengths[which]


def report_material(
    graph: GraphTables,
    entity_sources: KeySets,
    communities: pa.Table,
    outlines: ReportOutlines,
    known: KnownDigests | None = None,
) -> CommunityMaterial:
    """Return the material of reports."""
    rows = pa.concat_tables([outlines.below, outlines.above])
    is_above = np.arange(rows.num_rows) >= outlines.below.num_rows
    indptr, places, texts = _places(graph, outlines)
    n_entities = graph.entities.num_rows
    is_entity = texts < n_entities
    ids = pa.concat_arrays(
        [
            one_array(graph.entities["entity_id"].take(pa.array(texts[is_entity]))),
            one_array(graph.relations["relation_id"].take(pa.array(texts[~is_entity] - n_entities))),
        ]
    )
    state = REPORT_INPUTS.empty_table() if known is None else known.state
    written = written_inputs(state["inputs"], pa.chunked_array([ids]))
    digests, is_known = np.zeros(len(ids), np.int64), np.zeros(len(ids), bool)
    if known is not None:
        current = (known.state["stale_share"].to_numpy() == 0)[written.owners] & (written.ids >= 0)
        if not known.any_claims:
            digests[written.ids[current]] = written.digests[current]
            is_known[written.ids[current]] = True
            is_known &= ~np.concatenate([known.changed_entities, known.changed_relations])[texts]
    digests[~is_known] = _digests(graph, texts[~is_known])
    return CommunityMaterial(
        graph,
        rows,
        is_above,
        Inputs(indptr, places, digests[places]),
        ids,
        texts,
        written,
        communities,
        entity_sources,
    )


def _places(graph: GraphTables, outlines: ReportOutlines) -> tuple[IntVector, IntVector, IntVector]:
    """Return the inputs of reports as places among all that are shown.

    Returns:
        (indptr, places, texts): CSR of the places of each report, ascending; the row of each place, as
        `CommunityMaterial.texts`. Entities come first, then relations by kind, those of summaries by layer.
    """
    entities, entity_at = _ranked(outlines.entity_rows.keys, graph.entities.num_rows)
    relations, relation_at = _ranked(outlines.relation_rows.keys, graph.relations.num_rows)
    some = graph.relations.select(["kind", "layer"]).take(pa.array(relations))
    kind = rows_of(some["kind"], pa.chunked_array([_KINDS]))
    order = np.lexsort((relations, np.where(kind == _SUMMARY, some["layer"].to_numpy(), 0), kind))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    texts = np.concatenate([entities, graph.entities.num_rows + relations[order]]).astype(np.int64)
    by_owner = np.concatenate([outlines.entity_rows.owners, outlines.relation_rows.owners]) * len(texts)
    by_owner[: len(entity_at)] += entity_at
    by_owner[len(entity_at) :] += len(entities) + rank[relation_at]
    by_owner.sort()
    indptr = outlines.entity_rows.indptr + outlines.relation_rows.indptr
    return indptr, by_owner % max(len(texts), 1), texts


def _ranked(rows: IntVector, n_rows: int) -> tuple[IntVector, NDArray[np.int32]]:
    """Return the distinct rows, ascending, and for each row its place among them; without sorting."""
    there = np.zeros(n_rows, np.bool_)
    there[rows] = True
    ranks = np.cumsum(there, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(there), ranks[rows]


def _digests(graph: GraphTables, texts: IntVector) -> IntVector:
    """Return the digest of what a report shows of each entity and relation."""
    n_entities = graph.entities.num_rows
    is_entity = texts < n_entities
    stated: dict[str, list[str]] = {}
    for claim in graph.claims.select(["claim_id", "subject_id"]).sort_by("claim_id").to_pylist():
        stated.setdefault(claim["subject_id"] or "", []).append(claim["claim_id"])

    def of_entities(some: pa.Table) -> IntVector:
        claims = [" ".join(stated.get(own, ())) for own in some["entity_id"].to_pylist()]
        return digests_of(some["name"].to_pylist(), some["type"].to_pylist(), _shown(some["description"]), claims)

    def of_relations(some: pa.Table) -> IntVector:
        return digests_of(_shown(some["description"]), [f"{weight:g}" for weight in some["weight"].to_pylist()])

    entities = graph.entities.select(["entity_id", "name", "type", "description"])
    relations = graph.relations.select(["description", "weight"])
    digests = np.zeros(len(texts), np.int64)
    for table, which, first_row, digest in (
        (entities, np.flatnonzero(is_entity), 0, of_entities),
        (relations, np.flatnonzero(~is_entity), n_entities, of_relations),
    ):
        for first in range(0, len(which), _BLOCK_ROWS):
            at = which[first : first + _BLOCK_ROWS]
            digests[at] = digest(table.take(pa.array(texts[at] - first_row)))
    return digests


def _descriptions(graph: GraphTables, texts: IntVector) -> list[str]:
    """Return the description of each entity and relation as a report shows it."""
    n_entities = graph.entities.num_rows
    is_entity = texts < n_entities
    found = np.empty(len(texts), object)
    found[is_entity] = _shown(graph.entities["description"].take(pa.array(texts[is_entity])))
    found[~is_entity] = _shown(graph.relations["description"].take(pa.array(texts[~is_entity] - n_entities)))
    return list(found)


def _shown(texts: pa.ChunkedArray) -> list[str]:
    return [shorten(one_line(text), DESCRIPTION_CHARS) for text in texts.to_pylist()]


def stacked_sets(sets: Sequence[KeySets]) -> KeySets:
    """Return sets of keys, one after another."""
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(each.indptr) for each in sets]))])
    return KeySets(indptr.astype(np.int64), np.concatenate([each.keys for each in sets]))


MAX_TREE_REPORTS = 256  # reports of a tree in one task, which holds them in memory
_MIN_LINE_TOKENS = 6  # tokens of the line of an entity or relation in a prompt, which bounds how many can be shown


@dataclass(frozen=True)
class LostIds:
    """Ids of entities and relations that the base has and the index of now has not."""

    entities: pa.Array
    relations: pa.Array


@dataclass(frozen=True)
class ReportedGraph:
    """The graph after a change."""

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
    """Return the graph of all layers with its communities. The base's relations are released."""
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
    """Return the ids that the index of now has not, of `relations` those that were not merged again."""
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
    """Return CHANGED_ENTITIES: ends of relations that came, are gone or have another weight, and new entities."""
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
