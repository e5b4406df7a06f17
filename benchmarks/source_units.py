"""Sentences, and names by BM25, as starting points of the ranking of sources: what would they add?

The product has vectors of chunks and entities, and BM25 over chunks. This benchmark adds one group of starting points,
half the share of the names, or replaces one:

    sentences chunks      the chunks of the 10 sentences nearest to the question
    sentences entities    the extracted entities whose names are in these sentences
    chunks by sentences   in place of the nearest chunks: those with the nearest sentences
    names                 the 10 entities of layer 0 whose names are the best for the question by BM25
    names new             those of them that the question does not name word for word
    names described       the 10 best by name and description

    python -m benchmarks.source_units FOLDER… [--index DIR] [--embedder hashing|minilm]

FOLDER and DIR are those of `source_ranking.py`. A JSON line for each way: the figures, and the difference to the
product with a paired bootstrap interval over questions; first a line of what the vectors of sentences cost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.source_questions import Asked, ask, compare_ways
from benchmarks.source_ranking import Case, Figures, figures_of
from benchmarks.source_variants import AS_IS, Found, Variant, starts_of
from hirag_dist.core.graph.pagerank import personalised_pagerank
from hirag_dist.core.retrieval.entity_linking import found_names, longest_names, words
from hirag_dist.core.retrieval.lexical import LexicalIndex, LexicalIndexBuilder, best_chunks, visible_chunks
from hirag_dist.core.retrieval.source_ranking import NEAREST, excess, shared
from hirag_dist.core.text.terms import terms
from hirag_dist.core.text.tokens import counter
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.types import FloatVector, IntVector

WAYS: Final = (
    AS_IS,
    "sentences chunks",
    "sentences entities",
    "chunks by sentences",
    "names",
    "names new",
    "names described",
)
SHARE: Final = 0.5  # of the added group, where that of the names is 1
_SENTENCE: Final = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？]+(?=\s|$|[^\x00-\x7f])|\n|$|[.!?])")
_MIN_CHARS: Final = 20
_Group = tuple[IntVector, FloatVector]


def main() -> None:
    compare_ways("source_units", __doc__, _measured)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without very short ones.

    >>> sentences("Ada wrote the first program. It was 1843. Yes.")
    ['Ada wrote the first program.']
    """
    return [one for found in _SENTENCE.findall(text) if len(one := found.strip()) >= _MIN_CHARS]


async def _measured(case: Case, embedder_name: str) -> dict[str, Figures]:
    asked = await ask(case)
    embedder, graph = make_embedder(case.config), asked.index.walk_graph
    chunk_texts = case.snapshot.table("chunks", ["text"])["text"].to_pylist()
    pairs = [(row, one) for row, text in enumerate(chunk_texts) for one in sentences(text)]
    chunk_of, texts = np.array([row for row, _ in pairs], np.int64), [text for _, text in pairs]
    vectors = await embedder.embed(texts)
    cost = {"sentences": len(texts), "tokens": sum(map(counter("o200k_base"), texts)), "bytes": vectors.nbytes}
    print(json.dumps({"benchmark": "source_units", "set": case.name, "embedder": embedder_name} | cost), flush=True)
    extracted = int(graph.layer_ends[0])
    table = case.snapshot.table("entities", ["name", "description"])
    names, described = (table[column].to_pylist()[:extracted] for column in ("name", "description"))
    by_name = _lexical(names)
    by_text = _lexical([f"{name}\n{text}" for name, text in zip(names, described, strict=True)])
    measured: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for question, found in zip(case.questions, asked.found, strict=True):
        similar = vectors @ (await embedder.embed([question.text]))[0]
        near = np.lexsort((np.arange(len(similar)), -similar))[:NEAREST]
        own = terms(question.text)
        lexical = {"names": _best(by_name, own), "names described": _best(by_text, own)}
        rows, scores = lexical["names"]
        new = ~np.isin(rows, found.names)
        groups: dict[str, _Group] = {
            "sentences chunks": (chunk_of[near] + len(graph.layers), excess(similar[near])),
            "sentences entities": _entities(asked, texts, near, similar[near]),
            "names new": (rows[new], excess(scores)[new] / _mentions(asked, rows[new])),
        }
        groups |= {way: (each, excess(worth) / _mentions(asked, each)) for way, (each, worth) in lexical.items()}
        for way in WAYS:
            starts = replace(found, chunks=_by_sentences(similar, chunk_of)) if way == "chunks by sentences" else found
            passages = _ranked(asked, starts, groups.get(way))
            measured[way].append(figures_of(passages, question.gold))
    return {way: np.array(figures) for way, figures in measured.items()}


def _lexical(texts: Sequence[str]) -> LexicalIndex:
    builder = LexicalIndexBuilder()
    builder.add(np.arange(len(texts)), texts)
    return builder.built(len(texts))


def _best(index: LexicalIndex, own: Sequence[str]) -> _Group:
    return best_chunks(index, own, NEAREST, visible_chunks(index, None))


def _entities(asked: Asked, texts: Sequence[str], near: IntVector, similar: FloatVector) -> _Group:
    """Return the entities named in some sentences; each counts by its best sentence."""
    worth: dict[int, float] = {}
    index = asked.index
    for place, weight in zip(near.tolist(), excess(similar).tolist(), strict=True):
        for row in longest_names(found_names(index.files.entity_names, words(texts[place]))):
            if index.layers[row] == 0:
                worth[row] = max(worth.get(row, 0.0), weight)
    rows = np.array(list(worth), np.int64)
    return rows, np.array(list(worth.values())) / _mentions(asked, rows)


def _mentions(asked: Asked, rows: IntVector) -> FloatVector:
    found: FloatVector = np.maximum(np.diff(asked.index.walk_graph.entity_indptr)[rows], 1).astype(np.float64)
    return found


def _by_sentences(similar: FloatVector, chunk_of: IntVector) -> list[tuple[int, float]]:
    """Return (chunk row, similarity of its nearest sentence) of the best, best first."""
    best = np.full(int(chunk_of.max()) + 1, -np.inf)
    np.maximum.at(best, chunk_of, similar)
    rows = np.lexsort((np.arange(len(best)), -best))[: 2 * NEAREST]
    return [(int(row), float(best[row])) for row in rows]


def _ranked(asked: Asked, found: Found, group: _Group | None) -> list[str]:
    """Return the evidence ids of the best chunks, with a further group among the starting points."""
    graph = asked.index.walk_graph
    nodes, shares = starts_of(graph, asked.index.provenance, found, Variant())
    if group is not None:
        nodes, shares = shared([(nodes, shares), group], [sum(Variant().shares), SHARE])
    rows, mass = personalised_pagerank(graph, nodes, shares, tolerance=Variant().tolerance)
    return [asked.passages[row] for row in rows[np.lexsort((rows, -mass))][:10].tolist()]


if __name__ == "__main__":
    main()
