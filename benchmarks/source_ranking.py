"""Do the sources of a question hold its evidence? Recall of gold passages, by mode.

For each set of questions: the share of gold passages among the first 2, 5 and 10 sources, and the share of questions
all of whose gold passages are among the first 5 and 10; the differences to `naive` (chunks by vector) with a paired
bootstrap interval over questions; and the same for all sets of multi-hop questions together.

    python benchmarks/source_ranking.py FOLDER… [--index DIR] [--embedder hashing|minilm] [--modes hirag naive …]
        [--set KEY=VALUE …]

FOLDER holds corpus.jsonl (passage_id, title, text, and perhaps part_of) or documents.jsonl (doc_id, text), and
questions.jsonl (question, gold_passage_ids or evidence_doc_ids, and perhaps type), and may hold recorded OpenIE
triples, which are then replayed as the extraction; without them the built-in model extracts. One chunk
a passage. Questions of type Single are a set of their own, and no multi-hop questions; those without evidence are left
out. An index takes 10 s to 10 min to build; --index keeps it, in a folder of DIR for each set.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.jsonl import rows_of
from hirag_dist.composition.indexing import run_build
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.evaluation.metrics.statistics import bootstrap_mean
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.retrieval.search import MODES
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query

FIGURES = ("recall@2", "recall@5", "recall@10", "all@5", "all@10")
NAIVE = "naive"
Figures = NDArray[np.float64]  # (n_questions, len(FIGURES))


class Passage(NamedTuple):
    """A passage of a corpus.

    Attributes:
        evidence_id: what it counts for as evidence: itself, or the text that it is a part of.
    """

    passage_id: str
    title: str
    text: str
    evidence_id: str


@dataclass(frozen=True)
class Question:
    """A question with the passages that hold its evidence; `single` where one of them is enough."""

    text: str
    gold: frozenset[str]
    single: bool


@dataclass(frozen=True)
class Case:
    """A set of questions, and its index.

    Attributes:
        passages: in the order of the index's input.
    """

    name: str
    config: Config
    passages: list[Passage]
    snapshot: Snapshot
    questions: list[Question]

    def kinds(self) -> Iterator[tuple[str, bool, NDArray[np.bool_]]]:
        """Yield (name, whether one passage is enough, which questions) of each kind of question that there is."""
        for single in sorted({question.single for question in self.questions}):
            chosen = np.array([question.single == single for question in self.questions])
            yield f"{self.name} (single)" if single else self.name, single, chosen


def options(description: str | None, folders: str = "+") -> argparse.ArgumentParser:
    """Return a parser of what says which sets are looked at, with which embedder."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs=folders, type=Path, metavar="FOLDER")
    parser.add_argument("--index", type=Path, help="keep the indexes here")
    parser.add_argument("--embedder", choices=("hashing", "minilm"), default="hashing")
    return parser


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield the sets that `options` named, one after another, each with its index; those not kept go at the end."""
    with tempfile.TemporaryDirectory() as temporary:
        for folder in arguments.folders:
            config = configured(folder, arguments.embedder)
            kept = (arguments.index or Path(temporary)) / f"{folder.name}-{arguments.embedder}"
            passages = list(read_passages(folder))
            snapshot = built(config, passages, kept, Path(temporary))
            yield Case(folder.name, config, passages, snapshot, read_questions(folder))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="keys of retrieval")
    arguments = parser.parse_args()
    settings = {key: json.loads(value) for key, value in (one.split("=", 1) for one in arguments.set)}
    together: dict[str, list[Figures]] = {}
    for case in cases(arguments):
        measured = asyncio.run(_measured(case, settings, arguments.modes))
        for name, single, chosen in case.kinds():
            own = {way: figures[chosen] for way, figures in measured.items()}
            _tell(arguments.embedder, name, own)
            if not single:
                for way, figures in own.items():
                    together.setdefault(way, []).append(figures)
    _tell(arguments.embedder, "multi-hop, together", {way: np.concatenate(each) for way, each in together.items()})


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


def interval(differences: NDArray[np.float64]) -> list[float]:
    """Return the mean of paired differences, and the 2.5th and 97.5th percentile of its bootstrap."""
    found = bootstrap_mean(differences[~np.isnan(differences)])
    return [round(value, 3) for value in (found.value, found.low, found.high)]


def read_passages(folder: Path) -> Iterator[Passage]:
    """Yield the passages of a set."""
    corpus = folder / "corpus.jsonl"
    if corpus.exists():
        for row in rows_of(corpus):
            own = row["passage_id"]
            yield Passage(own, row["title"], f"{row['title']}\n{row['text']}", row.get("part_of", own))
    else:
        for row in rows_of(folder / "documents.jsonl"):
            own = row["doc_id"]
            yield Passage(own, own, f"{own}\n{row['text']}", own)


def read_questions(folder: Path) -> list[Question]:
    """Return the questions of a set that have evidence."""
    found = []
    for row in rows_of(folder / "questions.jsonl"):
        given = row["gold_passage_ids"] if "gold_passage_ids" in row else row["evidence_doc_ids"]
        gold = frozenset(passage for passage in given or () if passage)
        if gold:
            found.append(Question(row["question"], gold, row.get("type") == "Single"))
    return found


def built(config: Config, passages: list[Passage], index: Path, work: Path) -> Snapshot:
    """Return the snapshot of a set, built where it is not there yet."""
    store = Store(str(index))
    if current_id(store) is None:
        file = work / f"{index.name}.jsonl"
        with file.open("w", encoding="utf-8") as out:
            for own, title, text, _ in passages:
                out.write(json.dumps({"id": own, "title": title, "text": text}) + "\n")
        run_build([str(file)], store.uri, config)
    return open_snapshot(store)


def passages_of_chunks(snapshot: Snapshot, passages: list[Passage]) -> dict[str, str]:
    """Return chunk → what it counts for: a passage is a record of the one INPUT."""
    own = {row["document_id"]: row["record"] for row in snapshot.table("documents").to_pylist()}
    chunks = snapshot.table("chunks").select(["chunk_id", "document_id"]).to_pylist()
    return {row["chunk_id"]: passages[own[row["document_id"]]].evidence_id for row in chunks}


async def _measured(case: Case, settings: dict[str, Any], modes: list[str]) -> dict[str, Figures]:
    """Return the figures of every question, by mode."""
    config, snapshot, questions = case.config, case.snapshot, case.questions
    passage = passages_of_chunks(snapshot, case.passages)
    embedder = make_embedder(config)
    vectors = [(await embedder.embed([question.text]))[0] for question in questions]
    found: dict[str, Figures] = {}
    retrieval = config.retrieval.model_validate(config.retrieval.model_dump() | settings)
    engine = make_engine(config.model_copy(update={"retrieval": retrieval}), snapshot, Prompts())
    for mode in modes:
        rows = []
        for question, vector in zip(questions, vectors, strict=True):
            sources = (await engine.retrieve(Query(question.text, mode, vector=vector))).sources
            rows.append(figures_of([passage[source.chunk_id] for source in sources], question.gold))
        found[mode] = np.array(rows)
    await engine.close()
    return found


def figures_of(ranked: list[str], gold: frozenset[str]) -> list[float]:
    """Return `FIGURES` of one question.

    >>> figures_of(["b", "x", "y", "z", "w", "a"], frozenset("ab"))
    [0.5, 0.5, 1.0, 0.0, 1.0]
    """
    shares = [len(gold.intersection(ranked[:first])) / len(gold) for first in (2, 5, 10)]
    return [*shares, float(shares[1] == 1), float(shares[2] == 1)]


def _tell(embedder: str, name: str, measured: dict[str, Figures]) -> None:
    for way, figures in measured.items():
        line: dict[str, Any] = {"benchmark": "source_ranking", "set": name, "embedder": embedder, "way": way}
        line |= {"questions": len(figures)} | dict(zip(FIGURES, figures.mean(axis=0).round(3).tolist(), strict=True))
        if NAIVE in measured and way != NAIVE:
            gains = figures - measured[NAIVE]
            line["more than naive"] = {figure: interval(gains[:, at]) for at, figure in enumerate(FIGURES)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
