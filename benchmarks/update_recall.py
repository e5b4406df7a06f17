"""Recall of gold passages, and drift, of an index that came by updates, against one built from nothing.

Half of the passages are indexed, the other half is added in ten batches, and then a tenth of all is removed; the same
passages are indexed from nothing. For each set of questions and embedder: recall@2, @5 and @10 of both indexes, the
difference with the 95 % interval of a paired bootstrap over questions, and the drift of the first index.

    python -m benchmarks.update_recall FOLDER… [--embedder hashing|minilm] [--questions 100] [--modes hirag …]

FOLDER is one of `source_ranking.py`: corpus.jsonl and questions.jsonl, and perhaps recorded triples. --questions takes
the first questions and only the passages that are candidates of theirs. Gold passages that were removed do not count,
and a question without any left is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.jsonl import rows_of
from benchmarks.source_ranking import (
    FIGURES,
    Figures,
    Passage,
    Question,
    configured,
    figures_of,
    interval,
    read_passages,
    read_questions,
)
from benchmarks.update_steps import drift_figures, measured
from hirag_dist.composition.indexing import run_build
from hirag_dist.composition.query import make_engine
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query

N_BATCHES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--embedder", choices=("hashing", "minilm"), default="hashing")
    parser.add_argument("--questions", type=int, help="only the first questions and their passages")
    parser.add_argument("--modes", nargs="+", default=["hirag"])
    parser.add_argument("--seed", type=int, default=0, help="of the order of the passages")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        for line in compared(folder, arguments):
            labels = {"benchmark": "update_recall", "set": folder.name, "embedder": arguments.embedder}
            print(json.dumps(labels | line), flush=True)


def compared(folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a line of the two indexes of a set, and one for each mode."""
    config = configured(folder, arguments.embedder)
    passages, questions = chosen(folder, arguments.questions)
    random.Random(arguments.seed).shuffle(passages)
    half, tenth = len(passages) // 2, len(passages) // 10
    cuts = np.linspace(half, len(passages), N_BATCHES + 1).astype(int).tolist()
    batches = [passages[:half], *(passages[first:last] for first, last in pairwise(cuts))]
    removed = {one.passage_id for one in random.Random(arguments.seed + 1).sample(passages, tenth)}
    with tempfile.TemporaryDirectory() as work:
        updated, fresh, inputs = Path(work, "updated"), Path(work, "fresh"), Path(work, "input")
        inputs.mkdir()
        runs = []
        for number, batch in enumerate(batches):
            write_passages(inputs / f"{number:02d}.jsonl", batch)
            runs.append(_build(inputs, updated, config))
        for number, batch in enumerate(batches):
            write_passages(inputs / f"{number:02d}.jsonl", [one for one in batch if one[0] not in removed])
        runs.append(_build(inputs, updated, config))
        again = _build(inputs, fresh, config)
        sums = {key: round(sum(run[key] for run in runs), 1) for key in ("calls", "tokens", "wall_s", "cpu_s")}
        lines: list[dict[str, Any]] = [
            {
                "passages": len(passages) - tenth,
                "updates": len(runs) - 1,
                "updated": sums,
                "fresh": {key: again[key] for key in sums},
                "drift": drift_figures(str(updated)),
            }
        ]
        left = [kept for kept in (without(question, removed) for question in questions) if kept.gold]
        snapshots = [open_snapshot(Store(str(index))) for index in (updated, fresh)]
        for mode in arguments.modes:
            found = [asyncio.run(recall(config, snapshot, left, mode)) for snapshot in snapshots]
            lines.append({"mode": mode, "questions": len(left)} | _differences(*found))
    return lines


def chosen(folder: Path, n_questions: int | None) -> tuple[list[Passage], list[Question]]:
    """Return the passages and questions of a set, all of them or those of its first questions."""
    passages, questions = list(read_passages(folder)), read_questions(folder)
    if n_questions is None:
        return passages, questions
    rows = list(rows_of(folder / "questions.jsonl"))[:n_questions]
    kept = {own for row in rows for own in (*row["candidate_passage_ids"], *row["gold_passage_ids"])}
    texts = {row["question"] for row in rows}
    return [one for one in passages if one.passage_id in kept], [one for one in questions if one.text in texts]


def without(question: Question, removed: set[str]) -> Question:
    """Return a question without the gold passages that were removed.

    >>> without(Question("?", frozenset("ab"), False), {"a"}).gold
    frozenset({'b'})
    """
    return replace(question, gold=question.gold - removed)


def write_passages(path: Path, passages: Iterable[Passage]) -> None:
    """Write passages as records of a JSONL file."""
    lines = (json.dumps({"id": one.passage_id, "title": one.title, "text": one.text}) + "\n" for one in passages)
    path.write_text("".join(lines), encoding="utf-8")


async def recall(config: Config, snapshot: Snapshot, questions: Sequence[Question], mode: str) -> Figures:
    """Return the figures of every question in a mode."""
    documents = snapshot.table("documents", ["document_id", "source_ids"]).to_pylist()
    passage = {row["document_id"]: row["source_ids"][0] for row in documents}
    chunks = snapshot.table("chunks", ["chunk_id", "document_id"]).to_pylist()
    of_chunk = {row["chunk_id"]: passage[row["document_id"]] for row in chunks}
    embedder, engine = make_embedder(config), make_engine(config, snapshot, Prompts())
    rows = []
    for question in questions:
        vector = (await embedder.embed([question.text]))[0]
        sources = (await engine.retrieve(Query(question.text, mode, vector=vector))).sources
        rows.append(figures_of([of_chunk[source.chunk_id] for source in sources], question.gold))
    await engine.close()
    return np.array(rows)


def _build(inputs: Path, index: Path, config: Config) -> dict[str, Any]:
    return measured(lambda heard: run_build([str(inputs)], str(index), config, None, heard))


def _differences(updated: Figures, fresh: Figures) -> dict[str, Any]:
    names = [name for name in FIGURES if name.startswith("recall")]
    means = {"updated": updated, "fresh": fresh}
    line: dict[str, Any] = {
        way: {name: round(float(each[:, FIGURES.index(name)].mean()), 4) for name in names}
        for way, each in means.items()
    }
    gains = {name: interval(updated[:, FIGURES.index(name)] - fresh[:, FIGURES.index(name)]) for name in names}
    return line | {"updated - fresh": gains}


if __name__ == "__main__":
    main()
