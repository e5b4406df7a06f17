"""Material of the reports of communities, and the texts that it derives from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.communities import membership
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.key_sets import KeySets
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layers import DESCRIPTION_CHARS, Hierarchy
from hirag_dist.indexing.stages.communities import OutlineReports
from hirag_dist.indexing.update.written import Inputs, digests_of
from hirag_dist.schemas import COMMUNITIES
from hirag_dist.types import IntVector


@dataclass(frozen=True)
class CommunityMaterial:
    """All that reports may show, and what each community's report does.

    Attributes:
        entities, relations, claims: ENTITIES, RELATIONS and CLAIMS of all layers.
        rows: the outlines of all communities, below and above trees.
        is_above: (n_communities,) bool, by row of `rows`.
        inputs: by row of `rows`; ids are rows of `ids`.
        ids: of entities, then of relations.
        lengths: (n_ids,) characters of each one's text.
        members: entities of each community as rows of `entities`, by row of `rows`.
        entity_sources: texts that each entity derives from.
    """

    entities: pa.Table
    relations: pa.Table
    claims: pa.Table
    rows: pa.Table
    is_above: NDArray[np.bool_]
    inputs: Inputs
    ids: pa.ChunkedArray
    lengths: IntVector
    members: KeySets
    entity_sources: KeySets

    def sources(self, rows: IntVector) -> KeySets:
        """Return the texts that the members of some communities derive from."""
        members = self.members.take(rows)
        return self.entity_sources.unions(members.owners, members.keys, len(rows))


def report_material(
    context: BuildContext,
    hierarchy: Hierarchy,
    entity_sources: tuple[KeySets, ...],
    communities: Dataset,
    outline: OutlineReports.Outputs,
) -> CommunityMaterial:
    """Return the material of reports.

    Args:
        entity_sources: texts that the entities of each layer derive from, sorted by id within a layer.
        communities: COMMUNITIES of now.
        outline: of all of them.
    """
    datasets = context.datasets
    entities = datasets.read(hierarchy.entities).sort_by([("layer", "ascending"), ("entity_id", "ascending")])
    relations = datasets.read(hierarchy.relations)
    claims = datasets.read(hierarchy.base.claims)
    below, above = datasets.read(outline.outlines), datasets.read(outline.above)
    rows = pa.concat_tables([below, above]).combine_chunks()
    is_above = np.arange(rows.num_rows) >= below.num_rows
    ids = pa.chunked_array([*entities["entity_id"].chunks, *relations["relation_id"].chunks], pa.string())
    found = datasets.read(communities).cast(COMMUNITIES)
    inputs, lengths = _inputs(rows, ids, entities, relations, claims)
    indptr, members = membership(found, entities["entity_id"])
    order = rows_of(rows["community_id"], found["community_id"])
    return CommunityMaterial(
        entities,
        relations,
        claims,
        rows,
        is_above,
        inputs,
        ids,
        lengths,
        KeySets(indptr, members.astype(np.int64)).take(order),
        _stacked(entity_sources),
    )


def _inputs(
    rows: pa.Table, ids: pa.ChunkedArray, entities: pa.Table, relations: pa.Table, claims: pa.Table
) -> tuple[Inputs, IntVector]:
    """Return the inputs of all reports, and the length of the text of each entity and relation."""
    n_texts = rows.num_rows
    flat, owners = [], []
    for name in ("entity_ids", "relation_ids"):
        lists = rows[name].combine_chunks()
        flat.append(lists.flatten())
        owners.append(np.repeat(np.arange(n_texts), pc.list_value_length(lists).to_numpy(zero_copy_only=False)))
    places = rows_of(pa.chunked_array(flat, pa.string()), ids)
    owner = np.concatenate(owners)
    order = np.lexsort((places, owner))
    places, owner = places[order], owner[order]
    shown, position = np.unique(places, return_inverse=True)
    digests, lengths = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    n_entities = entities.num_rows
    here = shown[shown < n_entities]
    texts = _shown(entities.take(pa.array(here))["description"])
    stated = _claims_of(claims, entities["entity_id"].take(pa.array(here)))
    some = entities.select(["name", "type"]).take(pa.array(here))
    digests[here] = digests_of(some["name"].to_pylist(), some["type"].to_pylist(), texts, stated)
    lengths[here] = [len(text) for text in texts]
    linked = shown[shown >= n_entities]
    some = relations.select(["description", "weight"]).take(pa.array(linked - n_entities))
    texts = _shown(some["description"])
    digests[linked] = digests_of(texts, [f"{weight:g}" for weight in some["weight"].to_pylist()])
    lengths[linked] = [len(text) for text in texts]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n_texts))]).astype(np.int64)
    return Inputs(indptr, places, digests[shown][position]), lengths


def _claims_of(claims: pa.Table, ids: pa.ChunkedArray) -> list[str]:
    said: dict[str, list[str]] = {}
    for row in claims.select(["claim_id", "subject_id"]).sort_by("claim_id").to_pylist() if claims.num_rows else []:
        said.setdefault(row["subject_id"] or "", []).append(row["claim_id"])
    return [" ".join(said.get(own, ())) for own in ids.to_pylist()]


def _shown(texts: pa.ChunkedArray) -> list[str]:
    return [shorten(one_line(text), DESCRIPTION_CHARS) for text in texts.to_pylist()]


def _stacked(sets: tuple[KeySets, ...]) -> KeySets:
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(each.indptr) for each in sets]))])
    return KeySets(indptr.astype(np.int64), np.concatenate([each.keys for each in sets]))
