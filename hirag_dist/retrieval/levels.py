"""The levels of retrieval (paper §4.2): functions of a view, a question and what was found so far.

A mode is a list of them (`search.MODE_TABLE`). The levels of `graphrag-local` are those of GraphRAG's local search over
the same index, for comparisons.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np

from hirag_dist.core.retrieval.bridge import (
    bridge_relations,
    key_entity_steps,
    nearest_chunks,
    question_order,
    question_scores,
    weight_order,
)
from hirag_dist.core.retrieval.entity_linking import along_first, asks_for_paths, joined_in_order
from hirag_dist.core.retrieval.graphrag_local import relation_order, relations_at
from hirag_dist.retrieval.question import Found, Question, Scored
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.types import BY_NAME, BY_VECTOR, IntVector

Level = Callable[[MappedIndex, Question, Found], Awaitable[Found]]
_MAX_CLAIMS = 100  # about the local entities
_MAX_TRIPLES = 60  # bridge relations; more do not fit into a context beside the other levels


async def local_level(view: MappedIndex, question: Question, found: Found) -> Found:
    """Add the entities that the question names, then the nearest (Eq. 12)."""
    local, named = found.nearest, frozenset[int]()
    if not question.limits.follows_paper:
        local, named = question.names.local(local, question.limits.top_n)
    matches = [BY_NAME if row in named else BY_VECTOR for row, _ in local]
    return replace(
        found,
        result=replace(found.result, local=view.entities(local, matches=matches)),
        rows={**found.rows, "local": [row for row, _ in local]},
        entity_seeds=found.nearest,
    )


async def global_level(view: MappedIndex, question: Question, found: Found) -> Found:
    """Add the reports of the communities that hold the nearest entities (Eq. 13)."""
    with question.watch.timed("communities"):
        items, unreported = {}, set()
        for ranked in found.communities:
            item = view.community(ranked)
            if item is None and question.misses_reports:
                item = view.community_members(ranked, question.vector)
                unreported.add(ranked.community)
            if item is not None:
                items[ranked.community] = item
        return replace(
            found,
            result=replace(found.result, communities=tuple(items.values())),
            rows={**found.rows, "global": list(items)},
            unreported=frozenset(unreported),
            entity_seeds=found.nearest,
        )


async def bridge_level(view: MappedIndex, question: Question, found: Found) -> Found:
    """Add key entities of each community in order, the paths that join them, and the triples on those paths."""
    with question.watch.timed("bridge"):
        limits, vector = question.limits, question.vector
        chosen = [ranked.community for ranked in found.communities]
        members = key_entity_steps(view.communities, chosen, view.vectors, vector, limits.top_m, view.access)
        named_keys = [] if limits.follows_paper else question.names.endpoints()
        keys = joined_in_order(named_keys, await question.deadline.run(members))
        rows = [row for row, _ in keys]
        components = view.components
        if components is None:
            components = await question.deadline.run_in_thread(view.connect)
        paths = await question.deadline.run(question.paths.chain_steps(rows, view.access, components))  # Eq. 15
        inside = sorted({*rows, *chain.from_iterable(paths)})
        nodes = np.array(inside, np.int64)
        joined = view.visible_relations(bridge_relations(view.graph, view.parallel, nodes))
        ranked = _ranked_triples(view, question, joined, nodes, paths)
        if len(named_keys) > 1 and asks_for_paths(question.text):
            ranked = along_first(ranked, view.ends, paths[: len(named_keys) - 1])
        ranked = ranked[:_MAX_TRIPLES]
        named = view.named(inside)
        result = replace(
            found.result,
            key_entities=view.entities(keys, named),
            paths=view.paths(pairwise(rows), paths, named),
            triples=view.triples(ranked, named),
        )
        return replace(
            found,
            result=result,
            rows={**found.rows, "bridge": [row for row, _ in ranked]},
            relation_seeds=ranked,
            # With the local level the seeds are the nearest entities of all.
            entity_seeds=found.entity_seeds if "local" in question.levels else keys,
        )


async def neighbour_level(view: MappedIndex, question: Question, found: Found) -> Found:
    """Add the nearest entities of layer 0 and the claims about them, as GraphRAG's local search does."""
    rows = [row for row, _ in found.nearest]
    local = view.entities(found.nearest, matches=[BY_VECTOR] * len(rows))
    return replace(
        found,
        result=replace(found.result, local=local, claims=view.claims_about(rows, _MAX_CLAIMS)),
        rows={**found.rows, "local": rows},
    )


async def relation_level(view: MappedIndex, question: Question, found: Found) -> Found:
    """Add the relations of the nearest entities, in GraphRAG's order, in the place of a bridge."""
    with question.watch.timed("bridge"):
        entities = [row for row, _ in found.nearest]
        near = await question.deadline.run(relations_at(view.graph, view.parallel, view.layers, entities))

        def related() -> Found:
            rows = view.visible_relations(near)
            ends, weights = view.ends[rows], view.relation_weights(rows)
            order = relation_order(rows, ends, weights, entities)[:_MAX_TRIPLES]
            ranked = list(zip(rows[order].tolist(), weights[order].tolist(), strict=True))
            return replace(
                found,
                result=replace(found.result, triples=view.triples(ranked)),
                rows={**found.rows, "bridge": rows[order].tolist()},
                related=(rows, ends),
            )

        return await question.deadline.run_in_thread(related)  # a hub has many


def _ranked_triples(
    view: MappedIndex, question: Question, rows: IntVector, nodes: IntVector, paths: Sequence[Sequence[int]]
) -> Scored:
    """Return (relation row, score) of the relations among the nodes of the paths, in order (Eq. 16)."""
    ends, weights = view.ends[rows], view.relation_weights(rows)
    closeness = view.similarities(nodes, question.vector)
    stated = nearest_chunks(view.provenance, view.chunk_vectors, rows, question.vector, view.visible_chunks)
    scores = question_scores(ends, nodes, closeness, stated)
    if question.limits.follows_paper:
        return along_first(weight_order(rows, scores, weights), view.ends, paths)
    return question_order(rows, scores, weights)
