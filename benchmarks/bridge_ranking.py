"""Does the order of the bridge's triples bring the evidence of a question to the front?

For questions with known evidence: the share of gold passages that state one of the first 5, 10, 20 and 60 triples, the
share of questions whose answer stands in one of them, and both for the triples that the rendered context has room
for. Each ranking of `retrieval.bridge_ranking`, and the difference to `plain` with a paired bootstrap interval over
questions.

    python benchmarks/bridge_ranking.py FOLDER… [--index DIR] [--embedder hashing|minilm] [--modes hirag]

FOLDER holds corpus.jsonl (passage_id, title, text) and questions.jsonl (question, answer, answer_aliases,
gold_passage_ids), and may hold recorded OpenIE triples (passage_id, entities, triples), which are then replayed as the
extraction; without them the built-in model extracts. One chunk a passage. An index takes 10 to 60 s to build; --index
keeps it, in a folder of DIR for each FOLDER.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from benchmarks.jsonl import rows_of
from hirag_dist.composition.indexing import run_build
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config, RetrievalConfig
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.evaluation.metrics.statistics import bootstrap_mean
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query, TripleItem

FIRST = (5, 10, 20, 60)
RANKINGS = get_args(RetrievalConfig.model_fields["bridge_ranking"].annotation)


@dataclass(frozen=True)
class Question:
    """A question with its evidence; `answers` are the texts that answer it, none for yes and no."""

    text: str
    gold: frozenset[str]
    answers: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--index", type=Path, help="keep the indexes here")
    parser.add_argument("--embedder", choices=("hashing", "minilm"), default="hashing")
    parser.add_argument("--modes", nargs="+", default=["hirag"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for folder in arguments.folders:
            config = configured(folder, arguments.embedder)
            kept = (arguments.index or Path(temporary)) / f"{folder.name}-{arguments.embedder}"
            snapshot = built(config, folder, kept, Path(temporary))
            for mode in arguments.modes:
                for line in compared(config, snapshot, folder, mode):
                    print(
                        json.dumps(
                            {"benchmark": "bridge_ranking", "set": folder.name, "embedder": arguments.embedder} | line
                        ),
                        flush=True,
                    )


def configured(folder: Path, embedder: str, settings: Mapping[str, Any] | None = None) -> Config:
    """Return the configuration that a folder's index is built and asked with.

    Args:
        settings: key → value, over all others.
    """
    overrides: dict[str, Any] = {
        "chunking": "none",
        "execution.executor": "inline",
        "vectors.backend": "memory",
        "llm.endpoints.vectors": {"kind": embedder},
        "llm.roles.embed": "vectors",
    }
    if any(folder.glob("openie*.jsonl")):
        overrides["llm.endpoints.recording"] = {"kind": "recorded", "path": str(folder), "fallback": "builtin"}
        overrides["llm.roles.extract"] = "recording"
    return load_config(None, {}, overrides | dict(settings or {})).config


def built(config: Config, folder: Path, index: Path, work: Path) -> Snapshot:
    """Return the snapshot of a folder's corpus, built where it is not there yet."""
    store = Store(str(index))
    if current_id(store) is None:
        passages = work / f"{folder.name}.jsonl"
        with passages.open("w", encoding="utf-8") as out:
            for row in rows_of(folder / "corpus.jsonl"):
                text = f"{row['title']}\n{row['text']}"
                out.write(json.dumps({"id": row["passage_id"], "title": row["title"], "text": text}) + "\n")
        run_build([str(passages)], store.uri, config)
    return open_snapshot(store)


def compared(config: Config, snapshot: Snapshot, folder: Path, mode: str) -> list[dict[str, object]]:
    """Return a line for each ranking, and one for its difference to the plain one."""
    questions = [
        Question(
            row["question"],
            frozenset(row["gold_passage_ids"]),
            tuple(text.lower() for text in (row["answer"], *row.get("answer_aliases", [])) if len(text) > 3),
        )
        for row in rows_of(folder / "questions.jsonl")
    ]
    passages = passages_of_relations(snapshot, [row["passage_id"] for row in rows_of(folder / "corpus.jsonl")])
    measured = {
        ranking: asyncio.run(_asked(config, snapshot, questions, passages, ranking, mode)) for ranking in RANKINGS
    }
    lines: list[dict[str, object]] = []
    for ranking, figures in measured.items():
        line: dict[str, object] = {"mode": mode, "ranking": ranking, "questions": len(questions)}
        line |= {name: round(float(np.nanmean(values)), 3) for name, values in figures.items()}
        lines.append(line)
        if ranking != "plain":
            gains = {name: interval(values - measured["plain"][name]) for name, values in figures.items()}
            lines.append({"mode": mode, "ranking": f"{ranking} − plain", "questions": len(questions)} | gains)
    return lines


async def _asked(
    config: Config,
    snapshot: Snapshot,
    questions: list[Question],
    passages: dict[str, frozenset[str]],
    ranking: str,
    mode: str,
) -> dict[str, NDArray[np.float64]]:
    """Return, by figure, a number for each question; NaN where it has none."""
    retrieval = config.retrieval.model_copy(update={"bridge_ranking": ranking, "mode": mode})
    engine = make_engine(config.model_copy(update={"retrieval": retrieval}), snapshot, Prompts())
    rows: list[dict[str, float]] = []
    for question in questions:
        found = await engine.retrieve(Query(question.text))
        shown = sum(ref.startswith("R") for ref in found.context_refs)
        row: dict[str, float] = {"shown": shown}
        for name, count in [*((f"first_{count}", count) for count in FIRST), ("shown", shown)]:
            triples = found.triples[:count]
            row[f"gold_{name}"] = gold_share(question, triples, passages)
            row[f"answer_{name}"] = has_answer(question, triples)
        row["gold_sources"] = len(question.gold & _passages_of_sources(found.sources, passages)) / len(question.gold)
        rows.append(row)
    await engine.close()
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def gold_share(question: Question, triples: tuple[TripleItem, ...], passages: dict[str, frozenset[str]]) -> float:
    """Return the share of the gold passages that state one of the triples."""
    stated = frozenset[str]().union(*(passages[triple.relation_id] for triple in triples))
    return len(question.gold & stated) / len(question.gold)


def has_answer(question: Question, triples: tuple[TripleItem, ...]) -> float:
    """Return whether the answer stands in one of the triples; NaN for yes and no."""
    if not question.answers:
        return float("nan")
    texts = [f"{one.source_name} {one.target_name} {one.description}".lower() for one in triples]
    return float(any(answer in text for answer in question.answers for text in texts))


def interval(differences: NDArray[np.float64]) -> list[float]:
    """Return the mean of paired differences, and the 2.5th and 97.5th percentile of its bootstrap."""
    found = bootstrap_mean(differences[~np.isnan(differences)])
    return [round(value, 3) for value in (found.value, found.low, found.high)]


def passages_of_relations(snapshot: Snapshot, passage_ids: list[str]) -> dict[str, frozenset[str]]:
    """Return relation → passages that state it, and chunk → its passage: a passage is a record of the one INPUT."""
    documents = snapshot.table("documents").select(["document_id", "record"]).to_pylist()
    passage = {row["document_id"]: passage_ids[row["record"]] for row in documents}
    chunks = snapshot.table("chunks").select(["chunk_id", "document_id"]).to_pylist()
    of_chunk = {row["chunk_id"]: passage[row["document_id"]] for row in chunks}
    relations = snapshot.table("relations").select(["relation_id", "chunk_ids"]).to_pylist()
    stated = {row["relation_id"]: frozenset(of_chunk[own] for own in row["chunk_ids"]) for row in relations}
    return stated | {own: frozenset({name}) for own, name in of_chunk.items()}


def _passages_of_sources(sources: Any, passages: dict[str, frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*(passages[source.chunk_id] for source in sources))


if __name__ == "__main__":
    main()
