"""Questions of a set, asked once: the starting points that each has, for variants of the ranking of sources."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from benchmarks.bridge_ranking import interval
from benchmarks.source_ranking import FIGURES, Case, Figures, cases, options, passages_of_chunks
from benchmarks.source_variants import AS_IS, FUSED, MOST, Found
from hirag_dist.composition.query import make_engine
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.types import Query


@dataclass(frozen=True)
class Asked:
    """The questions of a set, in its order.

    Attributes:
        index: of the set.
        passages: of each chunk row, what it counts for.
        found: starting points of each question.
        engine_rows: chunk rows of the sources that the engine returned, in mode `hirag`.
    """

    index: MappedIndex
    passages: list[str]
    found: list[Found]
    engine_rows: list[list[int]]


async def ask(case: Case) -> Asked:
    """Ask all questions of a set in mode `hirag`, and return the starting points of each."""
    snapshot = case.snapshot
    index = MappedIndex.open(snapshot)
    chunk_ids = snapshot.table("chunks")["chunk_id"].to_pylist()
    chunk_rows = {own: row for row, own in enumerate(chunk_ids)}
    entity_rows = {own: row for row, own in enumerate(snapshot.table("entities")["entity_id"].to_pylist())}
    relation_rows = {own: row for row, own in enumerate(snapshot.table("relations")["relation_id"].to_pylist())}
    passages = passages_of_chunks(snapshot, case.passages)
    asked = Asked(index, [passages[own] for own in chunk_ids], [], [])
    embedder, engine = make_embedder(case.config), make_engine(case.config, snapshot, Prompts())
    nearest = engine.with_settings(case.config.retrieval.model_copy(update={"local_entities": "nearest"}))
    vectors = await embedder.embed([question.text for question in case.questions])
    for question, vector in zip(case.questions, vectors, strict=True):
        query = Query(question.text, "hirag", vector=vector)
        result, started = await engine.retrieve(query), await nearest.retrieve(query)
        near = index.nearest_chunks(vector, FUSED)
        words = index.chunks_with_words(question.text, MOST)
        asked.found.append(
            Found(
                index.named_entities(question.text),
                [(entity_rows[item.entity_id], item.score) for item in started.local if item.score is not None],
                [(relation_rows[item.relation_id], item.score) for item in result.triples],
                list(zip(near[0].tolist(), near[1].tolist(), strict=True)),
                list(zip(words[0].tolist(), words[1].tolist(), strict=True)),
            )
        )
        asked.engine_rows.append([chunk_rows[source.chunk_id] for source in result.sources])
    await engine.close()
    return asked


def compare_ways(
    benchmark: str, description: str | None, measure: Callable[[Case, str], Coroutine[Any, Any, dict[str, Figures]]]
) -> None:
    """Print the figures of each way of ranking and the difference to `AS_IS`, for the sets of the command line.

    Args:
        benchmark: name in the lines.
        description: of the command.
        measure: (set, embedder) → figures of every question, by way.
    """
    arguments = options(description).parse_args()
    for case in cases(arguments):
        measured = asyncio.run(measure(case, arguments.embedder))
        for name, _, chosen in case.kinds():
            for way, figures in measured.items():
                more = figures[chosen] - measured[AS_IS][chosen]
                line: dict[str, Any] = {"benchmark": benchmark, "set": name, "embedder": arguments.embedder}
                line |= {"way": way, "questions": len(more)}
                line |= dict(zip(FIGURES, figures[chosen].mean(axis=0).round(3).tolist(), strict=True))
                line |= {"more": {figure: interval(more[:, at]) for at, figure in enumerate(FIGURES)}}
                print(json.dumps(line), flush=True)
