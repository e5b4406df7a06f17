"""Does the bridge answer questions about connections? Named endpoints against key entities of communities alone.

Path questions name two entities whose connection the passages state (`mode_questions.py`: `chains`, `connections`).
For each mode and each `retrieval.bridge_endpoints`: the share of gold passages that state one of the first 5 and 10
triples, and one of those in the context; of gold passages among the first five sources and in the context; of
questions whose first path joins two entities of the question. Other sets of questions show whether they lose anything.
Differences to `communities` have a paired bootstrap interval over questions.

    python -m benchmarks.bridge_endpoints DATA SETS --index DIR [--embedder hashing|minilm] [--sets musique …]

DATA, SETS and DIR are those of `mode_choice.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bridge_ranking import configured, interval
from benchmarks.mode_questions import INDEXES, ClassedQuestion, questions
from benchmarks.source_ranking import Passage, built, passages_of_chunks, read_passages
from hirag_dist.composition.query import make_engine
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.entity_linking import words
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Query, Retrieval

MODES: Final = ("bridge", "hirag")
ENDPOINTS: Final = ("communities", "named")
FIGURES: Final = ("triples@5", "triples@10", "shown triples", "recall@5", "in context", "asked path", "tokens")
Figures = NDArray[np.float64]  # (n_questions, len(FIGURES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("made", type=Path, metavar="SETS")
    parser.add_argument("--index", type=Path, required=True, help="indexes that `source_ranking.py` keeps")
    parser.add_argument("--embedder", choices=("hashing", "minilm"), default="hashing")
    parser.add_argument("--sets", nargs="+", default=["chains", "connections", "musique", "hotpotqa"])
    arguments = parser.parse_args()
    asked = list(questions(arguments.data, arguments.made))
    for name in arguments.sets:
        own = [question for question in asked if question.set == name]
        folder = INDEXES[own[0].index]
        source = next(base / folder for base in (arguments.data, arguments.made) if (base / folder).exists())
        config, passages = configured(source, arguments.embedder), list(read_passages(source))
        snapshot = built(config, passages, arguments.index / f"{folder}-{arguments.embedder}", arguments.index)
        for mode in MODES:
            measured = asyncio.run(_measured(config, snapshot, passages, own, mode))
            for line in _lines(measured):
                head = {"benchmark": "bridge_endpoints", "set": name, "embedder": arguments.embedder, "mode": mode}
                print(json.dumps(head | line), flush=True)


async def _measured(
    config: Config, snapshot: Snapshot, passages: list[Passage], asked: Sequence[ClassedQuestion], mode: str
) -> dict[str, Figures]:
    """Return the figures of every question, by endpoints."""
    of_chunk = passages_of_chunks(snapshot, passages)
    relations = snapshot.table("relations", ["relation_id", "chunk_ids"]).to_pylist()
    stated = {row["relation_id"]: frozenset(of_chunk[own] for own in row["chunk_ids"]) for row in relations}
    vectors = await make_embedder(config).embed([question.text for question in asked])
    found: dict[str, Figures] = {}
    for endpoints in ENDPOINTS:
        retrieval = config.retrieval.model_copy(update={"bridge_endpoints": endpoints})
        engine = make_engine(config.model_copy(update={"retrieval": retrieval}), snapshot, Prompts())
        rows = [
            _figures(question, await engine.retrieve(Query(question.text, mode, vector=vector)), of_chunk, stated)
            for question, vector in zip(asked, vectors, strict=True)
        ]
        await engine.close()
        found[endpoints] = np.array(rows)
    return found


def _figures(
    question: ClassedQuestion, result: Retrieval, of_chunk: Mapping[str, str], stated: Mapping[str, frozenset[str]]
) -> list[float]:
    shown = sum(ref.startswith("R") for ref in result.context_refs)
    used = set(result.context_refs.values())
    sources = [of_chunk[source.chunk_id] for source in result.sources]
    read = {of_chunk[source.chunk_id] for source in result.sources if source.chunk_id in used}
    triples = [stated[triple.relation_id] for triple in result.triples]
    sets = [frozenset[str]().union(*triples[:count]) for count in (5, 10, shown)]
    shares = [len(question.gold & own) / len(question.gold) for own in (*sets, frozenset(sources[:5]), frozenset(read))]
    return [*shares, float(_joins_names(question.text, result)), float(result.context_tokens)]


def _joins_names(question: str, result: Retrieval) -> bool:
    """Return whether the first path joins two different entities whose names are in the question."""
    if not result.paths or not result.paths[0].connected:
        return False
    read = f" {' '.join(words(question))} "
    names = [" ".join(words(result.paths[0].entity_names[end])) for end in (0, -1)]
    return names[0] != names[1] and all(f" {name} " in read for name in names)


def _lines(measured: Mapping[str, Figures]) -> list[dict[str, Any]]:
    base = measured[ENDPOINTS[0]]
    lines = []
    for endpoints, figures in measured.items():
        line: dict[str, Any] = {"endpoints": endpoints, "questions": len(figures)}
        line |= dict(zip(FIGURES, figures.mean(axis=0).round(3).tolist(), strict=True))
        if endpoints != ENDPOINTS[0]:
            line["more"] = {figure: interval(figures[:, at] - base[:, at]) for at, figure in enumerate(FIGURES)}
        lines.append(line)
    return lines


if __name__ == "__main__":
    main()
