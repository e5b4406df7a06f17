"""Relations as starting points of the ranking of sources, by vectors of their descriptions: what would they add?

The product has no vectors of relations. This benchmark embeds the descriptions of the relations between extracted
entities, and adds a group of starting points to those of the product, half the share of the names:

    nearest    the relations nearest to the question
    beam       chains of relations that share entities, as PropRAG finds them (arXiv 2504.18070): the 10 best of up to
               3 relations by the similarity of their summed vectors, and the relations on them
    activated  instead of the retrieved entities, those that are reached from the named (else the nearest) ones over the
               5 relations of each that are nearest to the question, three times, as in LinearRAG (arXiv 2510.10114)

`nearest` and `beam` start from the chunks that state the relations, from the entities at their ends, or from both.

    python -m benchmarks.source_facts FOLDER… [--index DIR] [--embedder hashing|minilm]

FOLDER and DIR are those of `source_ranking.py`. A JSON line for each way: the figures, and the difference to the
product with a paired bootstrap interval over questions; first a line of what the vectors cost.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from benchmarks.source_questions import Asked, ask, compare_ways
from benchmarks.source_ranking import Case, Figures, figures_of
from benchmarks.source_variants import AS_IS, Found, Variant, starts_of
from hirag_dist.core.access.filter import spans
from hirag_dist.core.graph.pagerank import personalised_pagerank
from hirag_dist.core.retrieval.source_ranking import NEAREST, excess, shared
from hirag_dist.core.text.tokens import counter
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.types import FloatMatrix, FloatVector, IntVector

WAYS: Final = (AS_IS, *(f"{how} {what}" for how in ("nearest", "beam") for what in ("chunks", "entities", "both")))
SHARE: Final = 0.5  # of the group of relations, where that of the names is 1
BEAM: Final = 10
HOPS: Final = 3
MAX_OF_ENTITY: Final = 200  # relations of one entity that a chain may go on with
MIN_ACTIVATION: Final = 0.05


@dataclass(frozen=True)
class Facts:
    """Relations between extracted entities.

    Attributes:
        rows: (n,) relation rows.
        ends: (n, 2) entity rows.
        vectors: (n, dim) of the descriptions.
        of_entity: entity → positions.
    """

    rows: IntVector
    ends: IntVector
    vectors: FloatMatrix
    of_entity: dict[int, list[int]]


def main() -> None:
    compare_ways("source_facts", __doc__, _measured)


async def _measured(case: Case, embedder_name: str) -> dict[str, Figures]:
    asked = await ask(case)
    embedder = make_embedder(case.config)
    index = asked.index
    known = (index.ends >= 0).all(axis=1) & (index.layers[index.ends].max(axis=1) == 0)
    rows = np.flatnonzero(known)
    texts = case.snapshot.table("relations", ["description"])["description"].take(rows).to_pylist()
    vectors = await embedder.embed(texts)
    tokens = sum(map(counter("o200k_base"), texts))
    cost = {"relations": len(rows), "tokens": tokens, "bytes": vectors.nbytes + vectors.size + 8 * len(rows)}
    print(json.dumps({"benchmark": "source_facts", "set": case.name, "embedder": embedder_name} | cost), flush=True)
    of_entity: dict[int, list[int]] = defaultdict(list)
    ends = index.ends[rows].astype(np.int64)
    for place, pair in enumerate(ends.tolist()):
        for entity in set(pair):
            of_entity[entity].append(place)
    facts = Facts(rows, ends, vectors, of_entity)
    measured: dict[str, list[list[float]]] = {way: [] for way in (*WAYS, "activated")}
    for question, found in zip(case.questions, asked.found, strict=True):
        vector = (await embedder.embed([question.text]))[0]
        similar = vectors @ vector
        near = np.lexsort((rows, -similar))[:NEAREST]
        chains = beam(facts, similar, vector)
        for way in measured:
            if way == "activated":
                own = replace(found, entities=activated(facts, similar, found))
                passages = _ranked(asked, own, None)
            else:
                chosen = {"nearest": (near, similar[near]), "beam": chains}.get(way.split()[0])
                passages = _ranked(asked, found, chosen and (facts, *chosen), way.split()[-1])
            measured[way].append(figures_of(passages, question.gold))
    return {way: np.array(figures) for way, figures in measured.items()}


def beam(facts: Facts, similar: FloatVector, vector: FloatVector) -> tuple[IntVector, FloatVector]:
    """Return (positions, scores) of the relations on the best chains, best first; the score is that of the chain."""
    first = np.argsort(-similar, kind="stable")[:BEAM].tolist()
    chains: list[tuple[float, tuple[int, ...], Any]] = [
        (float(similar[place]), (place,), facts.vectors[place]) for place in first
    ]
    found = list(chains)
    for _ in range(HOPS - 1):
        longer: list[tuple[float, tuple[int, ...], Any]] = []
        for _, chain, total in chains:
            ends = facts.ends[chain[-1]].tolist()
            beyond = {place for entity in ends for place in facts.of_entity[entity][:MAX_OF_ENTITY]} - set(chain)
            places = np.array(sorted(beyond), np.int64)
            sums = facts.vectors[places] + total
            scores = (sums @ vector) / np.maximum(np.linalg.norm(sums, axis=1), 1e-9)
            best = np.argsort(-scores, kind="stable")[:BEAM].tolist()
            longer += [(float(scores[at]), (*chain, int(places[at])), sums[at]) for at in best]
        chains = sorted(longer, key=lambda one: (-one[0], one[1]))[:BEAM]
        found += chains
    scored: dict[int, float] = {}
    for score, chain, _ in sorted(found, key=lambda one: (-one[0], one[1]))[:BEAM]:
        for place in chain:
            scored.setdefault(place, score)
    return np.array(list(scored), np.int64), np.array(list(scored.values()))


def activated(facts: Facts, similar: FloatVector, found: Found) -> list[tuple[int, float]]:
    """Return (entity, activation) of the entities that are reached, best first."""
    active = dict.fromkeys(found.names, 1.0) or dict(found.entities[:3])
    current = active
    for _ in range(HOPS):
        reached: dict[int, float] = {}
        for entity, activation in current.items():
            for place in sorted(facts.of_entity.get(entity, ()), key=lambda one: (-similar[one], one))[:NEAREST]:
                passed = activation * max(float(similar[place]), 0.0)
                for other in facts.ends[place].tolist():
                    if passed > max(active.get(other, 0.0), reached.get(other, 0.0), MIN_ACTIVATION):
                        reached[other] = passed
        active = active | reached
        current = reached
    return sorted(active.items(), key=lambda one: (-one[1], one[0]))[: 4 * NEAREST]


def _ranked(
    asked: Asked, found: Found, chosen: tuple[Facts, IntVector, FloatVector] | None, what: str = "both"
) -> list[str]:
    """Return the evidence ids of the best chunks, with a group of relations among the starting points."""
    graph, provenance = asked.index.walk_graph, asked.index.provenance
    nodes, shares = starts_of(graph, provenance, found, Variant())
    if chosen is not None:
        facts, places, scores = chosen
        weights = excess(scores)
        first, last = (provenance.relation_indptr[facts.rows[places] + more] for more in (0, 1))
        owner, entries = spans(first, last)
        chunks = provenance.relation_chunks[entries].astype(np.int64) + len(graph.layers)
        ends = facts.ends[places].reshape(-1)
        mentions = np.maximum(np.diff(graph.entity_indptr)[ends], 1)
        parts = {
            "chunks": (chunks, (weights / np.maximum(last - first, 1))[owner]),
            "entities": (ends, np.repeat(weights, 2) / mentions),
        }
        group = shared(list(parts.values()) if what == "both" else [parts[what]])
        nodes, shares = shared([(nodes, shares), group], [sum(Variant().shares), SHARE])
    rows, mass = personalised_pagerank(graph, nodes, shares, tolerance=Variant().tolerance)
    return [asked.passages[row] for row in rows[np.lexsort((rows, -mass))][:10].tolist()]


if __name__ == "__main__":
    main()
