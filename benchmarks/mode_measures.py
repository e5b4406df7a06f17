"""Measures of each mode for questions by class: evidence, context tokens, and the names in each question."""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bridge_ranking import configured
from benchmarks.jsonl import rows_of
from benchmarks.mode_questions import INDEXES, ClassedQuestion, answer_terms
from benchmarks.source_ranking import Passage, built, passages_of_chunks, read_passages
from hirag_dist.composition.indexing import run_build
from hirag_dist.composition.query import make_engine
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.entity_linking import words
from hirag_dist.core.text.terms import terms
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query, Retrieval

MODES: Final = ("hirag", "nobridge", "local", "global", "bridge", "lean", "flat", "naive")
FIGURES: Final = ("recall@5", "evidence", "tokens")
_NEAREST: Final = 10  # chunks of a profile
_FIRST: Final = 5  # entities of a profile


@dataclass(frozen=True)
class Measured:
    """A question and what each mode finds for it.

    Attributes:
        n_names: different names of entities of the index that it holds.
        figures: mode → figure → number. `recall@5`: share of the evidence among the first five sources; `evidence`:
            share of it in the rendered context; None where none is known.
        profile: features of the search that were tried for the choice (`search_profile`).
    """

    set: str
    index: str
    embedder: str
    kind: str
    half: str
    question: str
    n_names: int
    figures: Mapping[str, Mapping[str, float | None]]
    profile: Mapping[str, float]


def measured(
    arguments: argparse.Namespace, asked: Sequence[ClassedQuestion], there: Collection[tuple[str, str]]
) -> Iterator[tuple[str, str, list[Measured]]]:
    """Yield (index, embedder, measures) of what is not there yet.

    Args:
        arguments: data, sets, index, embedder.
        asked: all questions.
        there: (index, embedder) that were measured before.
    """
    for at, embedder in enumerate(arguments.embedder):
        for name in INDEXES:
            folder = _folder(arguments, name)
            config, kept = _configured(folder, name, embedder), arguments.index / f"{folder.name}-{embedder}"
            if (name, embedder) in there or (at and current_id(Store(str(kept))) is None):
                continue
            passages = list(_passages(folder, name))
            snapshot = _snapshot(config, folder, name, passages, kept)
            own = [question for question in asked if question.index == name]
            yield name, embedder, asyncio.run(_measured(config, snapshot, passages, own, embedder, arguments.data))


def _folder(arguments: argparse.Namespace, name: str) -> Path:
    if name == "ordinary":
        return Path(str(resources.files("hirag_dist.samples"))) / "samples"
    data, sets = Path(arguments.data), Path(arguments.sets)
    return next(base / INDEXES[name] for base in (data, sets) if (base / INDEXES[name]).exists())


def _configured(folder: Path, name: str, embedder: str) -> Config:
    config = configured(folder, embedder)
    whole = name in ("mix", "ordinary")  # documents, which are cut into chunks
    return config.model_copy(update={"chunking": Config.model_fields["chunking"].default}) if whole else config


def _passages(folder: Path, name: str) -> Iterator[Passage]:
    if name == "mix":
        for row in rows_of(folder / "corpus.jsonl"):
            yield Passage(row["doc_id"], row["doc_id"], row["text"], row["doc_id"])
    elif name != "ordinary":
        yield from read_passages(folder)


def _snapshot(config: Config, folder: Path, name: str, passages: list[Passage], kept: Path) -> Snapshot:
    if name != "ordinary":
        with tempfile.TemporaryDirectory() as temporary:
            return built(config, passages, kept, Path(temporary))
    store = Store(str(kept))
    if current_id(store) is None:
        run_build([str(folder.parent / "corpus")], store.uri, config)
    return open_snapshot(store)


async def _measured(
    config: Config,
    snapshot: Snapshot,
    passages: list[Passage],
    asked: Sequence[ClassedQuestion],
    embedder: str,
    data: Path,
) -> list[Measured]:
    index, engine = MappedIndex.open(snapshot), make_engine(config, snapshot, Prompts())
    nearest = engine.with_settings(config.retrieval.model_copy(update={"local_entities": "nearest"}))
    by_gold = any(question.gold for question in asked)
    passage = passages_of_chunks(snapshot, passages) if by_gold else {}
    mix = any(question.points for question in asked)
    points = answer_terms(data, snapshot.table("chunks")["text"].to_pylist()) if mix else {}
    vectors = await make_embedder(config).embed([question.text for question in asked])
    found = []
    for question, vector in zip(asked, vectors, strict=True):
        names = index.named(index.named_entities(question.text))[1].values()
        started = await nearest.retrieve(Query(question.text, MODES[0], vector=vector))
        figures, profile = {}, search_profile(index, question.text, vector, started)
        for mode in MODES:
            result = await engine.retrieve(Query(question.text, mode, vector=vector))
            first, all_of = evidence(question, result, passage, points)
            figures[mode] = {"recall@5": first, "evidence": all_of, "tokens": float(result.context_tokens)}
        n_names = len({tuple(words(name)) for name in names})
        found.append(
            Measured(
                question.set,
                question.index,
                embedder,
                question.kind,
                question.half,
                question.text,
                n_names,
                figures,
                profile,
            )
        )
    await engine.close()
    return found


def search_profile(
    index: MappedIndex, question: str, vector: NDArray[np.float32], result: Retrieval
) -> dict[str, float]:
    """Return features of the search of a question, none of which depends on the scale of an embedder.

    Args:
        index: that was searched.
        question, vector: of it.
        result: in mode hirag, with the nearest entities alone.
    """
    near, near_scores = index.nearest_chunks(vector, _NEAREST)
    found, scores = index.chunks_with_words(question, _NEAREST)
    extracted = [item.score or 0.0 for item in result.local if item.layer == 0][:_FIRST]
    hits = sum(item.hits for item in result.communities)
    return {
        "peak of chunks": _drop(near_scores.tolist()),
        "peak of words": _drop(scores.tolist()),
        "peak of entities": _drop(extracted),
        "rarity of words": float(scores[0]) / math.log1p(len(index.chunk_vectors)) if len(scores) else 0.0,
        "agreement of chunks and words": len({*near.tolist()} & {*found.tolist()}) / _NEAREST,
        "share of summaries": sum(item.layer > 0 for item in result.local) / max(len(result.local), 1),
        "spread over communities": len(result.communities) / max(hits, 1),
        "length": math.log1p(len(words(question))),
    }


def _drop(scores: Sequence[float]) -> float:
    """Return the difference of the first and the last score, as a share of the first."""
    return (scores[0] - scores[-1]) / scores[0] if scores and scores[0] > 0 else 0.0


def evidence(
    question: ClassedQuestion,
    result: Retrieval,
    passage: Mapping[str, str],
    points: Mapping[str, frozenset[str]],
) -> tuple[float | None, float | None]:
    """Return the shares of the evidence in the first five sources, and in the context; None where none is known."""
    if question.gold:
        ranked = [passage[source.chunk_id] for source in result.sources]
        used = set(result.context_refs.values())
        read = {passage[source.chunk_id] for source in result.sources if source.chunk_id in used}
        return len(question.gold.intersection(ranked[:5])) / len(question.gold), len(question.gold & read) / len(
            question.gold
        )
    first = " ".join(" ".join(source.text.split()) for source in result.sources[:5])
    context = " ".join(result.context.split())
    if question.pattern:
        return tuple(float(bool(re.search(question.pattern, text))) for text in (first, context))  # type: ignore[return-value]
    wanted = frozenset().union(*(points[own] for own in question.points))
    if wanted:
        return len(wanted & set(terms(first))) / len(wanted), len(wanted & set(terms(context))) / len(wanted)
    return None, None
