"""Material of the reports of communities, and the texts that it derives from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.graph.communities import membership
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.key_sets import KeySets
from hirag_dist.core.reports.selection import ReportOutlines
from hirag_dist.core.row_changes import one_array
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.indexing.layers import DESCRIPTION_CHARS
from hirag_dist.indexing.written import Inputs, digests_of, written_inputs
from hirag_dist.schemas import REPORT_INPUTS
from hirag_dist.types import IntVector

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
        ids: of the entities and relations that any report shows.
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
    """Return the material of reports.

    Args:
        entity_sources: texts that each entity derives from.
        communities: COMMUNITIES of now.
        outlines: of all of them.
        known: of the base of an update.
    """
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
