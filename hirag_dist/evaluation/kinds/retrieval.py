"""`eval retrieval`: whether what is retrieved holds the gold evidence, by mode, and how fast it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, InputError
from hirag_dist.evaluation.board import NOTE, Board, comparison, difference_table, mean_table
from hirag_dist.evaluation.questions import Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, Trial, Value, trial_units
from hirag_dist.html import Cell, Table, Text
from hirag_dist.retrieval.search import MODES
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Query


class Evidence:
    """The chunks of one snapshot, by row, found from ids.

    An id is looked for among the owner's ids of records; those not found there among the ids of documents, their
    titles and the names of files, and the ids of chunks. Where several documents have it, a chunk of any of them is
    the evidence.

    Args:
        gold_ids: Ids as question files have them.

    Attributes:
        known: Gold ids that the snapshot has.
        examples: A few ids of records that the snapshot has.

    Raises:
        SnapshotCorrupt: a table cannot be read.
    """

    def __init__(self, snapshot: Snapshot, gold_ids: Iterable[str]) -> None:
        chunks = snapshot.table("chunks", ["chunk_id", "document_id"])
        documents = snapshot.table("documents", ["document_id", "uri", "title", "source_ids"])
        self.n_chunks = chunks.num_rows
        self.examples: list[str] = [own for ids in documents["source_ids"].slice(0, 3).to_pylist() for own in ids][:3]
        self._chunk_ids = chunks["chunk_id"].combine_chunks()
        wanted = frozenset(gold_ids)
        owners = _documents_by_name(wanted, documents)
        homes = rows_of(chunks["document_id"], documents["document_id"])
        inside: dict[int, list[int]] = {}
        for chunk in np.flatnonzero(np.isin(homes, [row for rows in owners.values() for row in rows])).tolist():
            inside.setdefault(int(homes[chunk]), []).append(chunk)
        self._of = {
            name: frozenset(chunk for row in rows for chunk in inside.get(row, ())) for name, rows in owners.items()
        }
        for name in wanted - owners.keys():
            if row := self.rows([name]):
                self._of[name] = frozenset(row)
        self.known = frozenset(self._of)

    def of(self, gold_id: str) -> frozenset[int]:
        """Return the rows of the chunks that hold what a gold id names; none where the snapshot does not have it."""
        return self._of.get(gold_id, frozenset())

    def rows(self, chunk_ids: Iterable[str]) -> list[int]:
        """Return the rows of chunks, in the order of their ids; ids that the snapshot does not have are left out."""
        ids = list(chunk_ids)
        hits = np.flatnonzero(pc.is_in(self._chunk_ids, pa.array(ids, pa.string())).to_numpy(zero_copy_only=False))
        row_of = dict(zip(self._chunk_ids.take(pa.array(hits)).to_pylist(), hits.tolist(), strict=True))
        return [row_of[own] for own in ids if own in row_of]


def _documents_by_name(wanted: frozenset[str], documents: pa.Table) -> dict[str, set[int]]:
    """Return the rows of the documents that have each name, by the first column in which it occurs."""
    own_ids = documents["source_ids"].combine_chunks()
    every = np.arange(documents.num_rows)
    columns = [(pc.list_flatten(own_ids), pc.list_parent_indices(own_ids).to_numpy())]
    columns += [(documents[name].combine_chunks(), every) for name in ("document_id", "title", "uri")]
    found: dict[str, set[int]] = {}
    for values, rows in columns:
        hits = pc.is_in(values, pa.array(sorted(wanted - found.keys()), pa.string()))
        named: dict[str, set[int]] = {}
        for name, row in zip(
            values.filter(hits).to_pylist(), rows[hits.to_numpy(zero_copy_only=False)].tolist(), strict=True
        ):
            named.setdefault(name, set()).add(row)
        found |= named
    return found


_AT_ONCE = 64  # questions under way: while one searches, others are embedded and put on record
_PARTS = ("search", "communities", "bridge", "sources", "render", "total")


async def evaluate_retrieval(
    session: Session, questions: Questions, modes: Sequence[str], ks: Sequence[int]
) -> Findings:
    """Ask every question with gold evidence in every mode and setting, and compare what comes.

    Args:
        questions: those without gold ids are counted and not asked.
        ks: Numbers of sources that count, each at least 1.

    Raises:
        ConfigError: no index, an unknown mode, or no k.
        InputError: no question has gold evidence, or the index has none of all the gold ids.
    """
    snapshot = session.require_snapshot()
    if not ks or min(ks) < 1:
        raise ConfigError("--k takes numbers of sources, each at least 1")
    systems = []  # which return as many sources as are counted; which ones come first does not change
    for system in session.systems(modes, MODES):
        n_sources = max(system.retrieval.top_sources, *ks)
        deep_enough = system.retrieval.model_copy(update={"top_sources": n_sources})
        systems.append(replace(system, retrieval=deep_enough))
    asked = [question for question in questions.items if question.gold]
    if not asked:
        raise InputError(f"no question of {questions.source} names gold evidence; name its field with --gold-field")
    session.refuse_records("questions", questions.unreadable)
    gold_ids = {own for question in asked for own in question.gold}
    evidence = Evidence(snapshot, gold_ids)
    if not evidence.known:
        raise InputError(none_known(questions.source, asked[0].gold[0], evidence.examples))
    alone = asyncio.Lock()

    async def work(trial: Trial) -> Value:
        """Retrieve for one question at a time, so that its times are its own; vectors of an endpoint come before."""
        text = trial.question.text
        vector = await session.embed(text) if session.embeds_elsewhere else None
        async with alone:
            vector = await session.embed(text) if vector is None else vector
            found = await session.engine(trial.system).retrieve(Query(text, trial.system.mode, vector=vector))
        sources = evidence.rows(item.chunk_id for item in found.sources)
        return {
            "ranks": [_rank(sources, evidence.of(own)) for own in trial.question.gold],
            "ms": {part: round(time, 4) for part, time in found.timings_ms.items() if part != "embed"},
            "context_tokens": found.context_tokens,
        }

    def decides(trial: Trial) -> list[Any]:
        return [snapshot.manifest.snapshot_id, trial.question.text, trial.question.gold, trial.system.decides]

    outcomes = await session.map("retrieve", trial_units(asked, systems, decides), work, at_once=_AT_ONCE)
    ks = sorted(set(ks))
    board = retrieval_board([question.type for question in asked], [system.name for system in systems], ks)
    async for outcome in outcomes:
        board.add(outcome.item.place, outcome.item.system.name, measured(outcome.value, ks))
    counts = questions.counts | {"gold_ids_unknown": len(gold_ids - evidence.known)}
    return findings(board, ks, evidence.n_chunks, counts, len(asked))


def none_known(source: str, gold_id: str, examples: Sequence[str]) -> str:
    """Return the advice for an index that has none of the gold ids; `examples` are ids that it has."""
    said = f"the index has none of the gold ids of {source}, which are like {gold_id!r}"
    if not examples:
        why = "an earlier version built it, which kept no ids of records; build it again, nothing is paid again"
        return f"{said}: {why}"
    like = f"while its records have ids like {', '.join(map(repr, examples))}"
    return f"{said}, {like}; name the right field with --gold-field, or build the index with --id-field"


def _rank(sources: Sequence[int], chunks: frozenset[int]) -> int | None:
    """Return the place of the first source, from 1, that is one of the chunks; None where none is."""
    return next((place for place, chunk in enumerate(sources, start=1) if chunk in chunks), None)


def retrieval_board(types: Sequence[str], systems: Sequence[str], ks: Sequence[int]) -> Board:
    """Return an empty board for the measures of `measured`."""
    return Board(types, systems, [*_recalls(ks), *_PARTS, "context_tokens"])


def _recalls(ks: Sequence[int]) -> list[str]:
    return [f"{name}@{k}" for name in ("recall", "all") for k in ks]


def measured(value: Value, ks: Sequence[int]) -> dict[str, float | None]:
    """Return the measures of one retrieval.

    Args:
        value: `ranks`, the place of each gold id among the sources or None; `ms` by part; `context_tokens`.
    """
    ranks = value["ranks"]
    shares = {k: sum(rank is not None and rank <= k for rank in ranks) / len(ranks) for k in ks}
    return {
        **{f"recall@{k}": share for k, share in shares.items()},
        **{f"all@{k}": float(share == 1.0) for k, share in shares.items()},
        **{part: value["ms"].get(part) for part in _PARTS},
        "context_tokens": value["context_tokens"],
    }


def findings(board: Board, ks: Sequence[int], n_chunks: int, counts: Mapping[str, int], n_asked: int) -> Findings:
    """Return results and sections.

    Args:
        ks: Numbers of sources that count, rising.
    """
    times = {
        system: {
            part: {"p50": float(np.quantile(known, 0.5)), "p99": float(np.quantile(known, 0.99))}
            for part in _PARTS
            if len(known := board.known(system, part))
        }
        for system in board.systems
    }
    results = board.results(_recalls(ks)) | {
        "asked": n_asked,
        "chunks_of_index": n_chunks,
        "ms": times,
        "context_tokens": {system: board.average(system, "context_tokens") for system in board.systems},
    }
    middle = f"recall@{ks[len(ks) // 2]}"
    headline = [mean_table("Evidence found by mode", results, ".1%"), *difference_table(results, "+.1%", [middle])]
    sections = [
        Text("What this shows", _explained(ks, n_chunks, counts, n_asked)),
        *comparison("Evidence found by mode", results, ".1%", [f"recall@{k}" for k in ks]),
        _time_table(times),
    ]
    return Findings(results, sections, headline, counts)


def _explained(ks: Sequence[int], n_chunks: int, counts: Mapping[str, int], n_asked: int) -> list[str]:
    said = [
        "recall@k is the share of a question's gold ids of which a chunk is among the first k sources, averaged over "
        f"questions; all@k is the share of questions that have all of theirs there. {NOTE}",
        f"Asked: {count_noun(n_asked, 'question')} with gold evidence; the index has {count_noun(n_chunks, 'chunk')}, "
        f"so a random choice of {count_noun(ks[-1], 'source')} would find {min(ks[-1] / max(n_chunks, 1), 1):.2%} of "
        "single chunks.",
    ]
    if counts.get("without_gold"):
        without = count_noun(counts["without_gold"], "question that names", "questions that name")
        said.append(f"Not asked: {without} no evidence.")
    if counts.get("gold_ids_unknown"):
        unknown = count_noun(counts["gold_ids_unknown"], "gold id is", "gold ids are")
        said.append(f"{unknown} not in the index, which counts as evidence that was not found.")
    return said


def _time_table(times: Mapping[str, Mapping[str, Any]]) -> Table:
    rows: list[list[Cell]] = []
    for name, found in times.items():
        medians = [found[part]["p50"] if part in found else None for part in _PARTS]
        rows.append([name, *medians, found["total"]["p99"] if "total" in found else None])
    note = "Milliseconds of one question, median; embedding the question is not in them."
    return Table("Time", ["mode", *_PARTS, "total p99"], rows, note, ".2f")
