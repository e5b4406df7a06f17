"""Recall of evidence on boards of multi-hop questions, with published figures beside ours, in one table.

    python -m benchmarks recall FOLDER… --index DIR [--modes naive hirag] [--questions N] [--set KEY=VALUE …]

FOLDER holds corpus.jsonl (passage_id, title, text) and questions.jsonl (question, gold_passage_ids), and may hold
recorded OpenIE triples, which are then replayed as the extraction; without them the built-in model extracts. A passage
is a chunk. --index keeps the indexes, a folder each; another --set of the embedder or the hierarchy needs another DIR.
Figures are percent, with 95 % bootstrap intervals over questions; no model but the embedder is called.
`hirag-dist eval retrieval` gives the same for questions of your own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from hirag_dist.application.build import run_build
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.evaluation.board import bootstrap_means
from hirag_dist.retrieval.search import MODES
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query

FIGURES = ("recall@2", "recall@5", "recall@10", "all@5", "all@10")
PUBLISHED = {  # folder → (system, embedder and model calls at a question, recall@5); all 1,000 questions of each set
    "musique": (
        ("ColBERTv2", "0 calls", 49.2),
        ("bge-large", "0 calls", 58.0),
        ("GFM-RAG", "0 calls", 59.3),
        ("NV-Embed-v2", "0 calls", 69.7),
        ("HippoRAG 2", "NV-Embed-v2, 1 call", 74.7),
        ("PropRAG", "NV-Embed-v2, 0 calls", 77.3),
        ("SAG 2", "bge-large, 2 calls", 80.4),
    ),
    "hotpotqa": (
        ("BM25", "0 calls", 73.1),
        ("GFM-RAG", "0 calls", 89.6),
        ("NV-Embed-v2", "0 calls", 94.5),
        ("HippoRAG 2", "NV-Embed-v2, 1 call", 96.3),
        ("PropRAG", "NV-Embed-v2, 0 calls", 97.0),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--index", required=True, type=Path, help="folder of the indexes")
    parser.add_argument("--modes", nargs="+", default=["naive", "hirag"], choices=MODES)
    parser.add_argument("--questions", type=int, help="number of questions of each set; all unless given")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="configuration, as of the commands")
    arguments = parser.parse_args()
    given = {key: _value(value) for key, value in (one.split("=", 1) for one in arguments.set)}
    table = Table("set", "system", "calls", *FIGURES, "p50 ms", "context tokens", title="Recall of evidence, percent")
    for folder in arguments.folders:
        for system, calls, recall in PUBLISHED.get(folder.name, ()):
            table.add_row(folder.name, f"{system} (published)", calls, "", f"{recall}")
        config = configured(folder, given)
        snapshot = built(folder, arguments.index / folder.name, config)
        questions = _lines(folder / "questions.jsonl")[: arguments.questions]
        ids = [row["passage_id"] for row in _lines(folder / "corpus.jsonl")]
        for mode in arguments.modes:
            line = asyncio.run(measured(snapshot, config, mode, questions, ids))
            print(json.dumps({"benchmark": "recall", "set": folder.name} | line), flush=True)
            cells = [f"{value} ({low} to {high})" for value, low, high in (line[name] for name in FIGURES)]
            ours = f"ours, {mode}, {snapshot.manifest.embedder}"
            table.add_row(folder.name, ours, "0 calls", *cells, f"{line['p50_ms']}", f"{line['context_tokens']}")
    Console(width=180).print(table)


def configured(folder: Path, given: dict[str, Any]) -> Config:
    """Return the configuration that the index of a folder is built and asked with."""
    overrides: dict[str, Any] = {"chunking": "none", "execution.executor": "inline", "vectors.backend": "memory"}
    if any(folder.glob("openie*.jsonl")):
        overrides["llm.endpoints.recording"] = {"kind": "recorded", "path": str(folder), "fallback": "builtin"}
        overrides["llm.roles.extract"] = "recording"
    return load_config(None, {}, overrides | given).config


def built(folder: Path, index: Path, config: Config) -> Snapshot:
    """Return the snapshot of a set, built where it is not there yet."""
    store = Store(str(index))
    if current_id(store) is None:
        with tempfile.TemporaryDirectory() as work:
            file = Path(work) / "corpus.jsonl"
            passages = _lines(folder / "corpus.jsonl")
            rows = ({"id": row["passage_id"], "text": f"{row['title']}\n{row['text']}"} for row in passages)
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            run_build([str(file)], store.uri, config)
    return open_snapshot(store)


async def measured(
    snapshot: Snapshot, config: Config, mode: str, questions: list[dict[str, Any]], ids: list[str]
) -> dict[str, Any]:
    """Return the figures of a mode, each with its interval, the median time of a question and its context.

    Args:
        ids: of the passages, in the order of the corpus.
    """
    records = {row["document_id"]: row["record"] for row in snapshot.table("documents").to_pylist()}
    chunks = snapshot.table("chunks", ["chunk_id", "document_id"]).to_pylist()
    passages = {row["chunk_id"]: ids[records[row["document_id"]]] for row in chunks}
    engine = make_engine(config, snapshot, Prompts())
    figures, times, tokens = [], [], []
    await engine.retrieve(Query("Which word warms the functions up?", mode))
    for row in questions:
        found = await engine.retrieve(Query(row["question"], mode))
        ranked = [passages[source.chunk_id] for source in found.sources]
        figures.append(figures_of(ranked, frozenset(row["gold_passage_ids"])))
        times.append(found.timings_ms["total"])
        tokens.append(found.context_tokens)
    await engine.close()
    line: dict[str, Any] = {"mode": mode, "embedder": snapshot.manifest.embedder, "questions": len(questions)}
    intervals = bootstrap_means(100 * np.array(figures))
    line |= {
        name: [round(value, 1) for value in (own.value, own.low, own.high)]
        for name, own in zip(FIGURES, intervals, strict=True)
    }
    return line | {"p50_ms": round(float(np.median(times)), 1), "context_tokens": round(float(np.mean(tokens)))}


def figures_of(ranked: list[str], gold: frozenset[str]) -> list[float]:
    """Return `FIGURES` of one question.

    >>> figures_of(["b", "x", "y", "z", "w", "a"], frozenset("ab"))
    [0.5, 0.5, 1.0, 0.0, 1.0]
    """
    shares = [len(gold.intersection(ranked[:first])) / len(gold) for first in (2, 5, 10)]
    return [*shares, float(shares[1] == 1), float(shares[2] == 1)]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == "__main__":
    main()
