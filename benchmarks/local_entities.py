"""Entities that a question names, in the local level: how many are there, and what do they displace?

    python -m benchmarks.local_entities FOLDER… [--mix DATA] [--index DIR] [--embedder hashing|minilm] [--modes hirag …]

FOLDER, DATA and DIR are those of `levels.py`. A line of JSON for each set, mode and `retrieval.local_entities`, with
the differences to `nearest` (paired bootstrap over questions). No model is asked but the embedder. Of a question:

    named            share of the names in the question with an entity in the local level
    proper           the same of names with a capital letter or a digit
    named shown      share of all names with an entity in the context
    recall@5         share of the gold passages among the first 5 sources
    shown            share of the gold passages whose chunk is in the context
    tokens           of the context
    facts, repetition, points
                     of the context, as `levels.py` counts them
    entered, left    entities of the local level that `nearest` has not, and those that it has instead
    entered in gold, proper in gold, left in gold
                     share of these that a gold passage mentions; proper: of those that entered by a name with a capital
                     letter or a digit
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bridge_ranking import interval
from benchmarks.context_counts import FactIndex, repetition
from benchmarks.levels import Asked, Row, add_mix, mix
from benchmarks.source_ranking import cases, options, passages_of_chunks
from hirag_dist.composition.query import make_engine
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.entity_linking import spelled_words
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.types import Query, Retrieval

MODES: Final = ("hirag", "nobridge", "flat", "lean")
WAYS: Final = ("nearest", "named")

Names = list[tuple[bool, frozenset[str]]]  # whether each is written with a capital or a digit, and its entities


def main() -> None:
    parser = options(__doc__, folders="*")
    add_mix(parser)
    parser.add_argument("--modes", nargs="+", default=MODES)
    arguments = parser.parse_args()
    for asked in _sets(arguments):
        for mode in arguments.modes:
            for line in _lines(asyncio.run(_measured(asked, mode))):
                head = {"benchmark": "local_entities", "set": asked.name, "embedder": arguments.embedder, "mode": mode}
                print(json.dumps(head | line), flush=True)


def _sets(arguments: argparse.Namespace) -> Iterator[Asked]:
    for case in cases(arguments):
        chunks = passages_of_chunks(case.snapshot, case.passages)
        texts, gold = [one.text for one in case.questions], [one.gold for one in case.questions]
        yield Asked(case.name, case.config, case.snapshot, texts, chunks, gold, None)
    if arguments.mix:
        yield mix(arguments)


async def _measured(asked: Asked, mode: str) -> dict[str, list[Row]]:
    """Return the figures of every question, by `local_entities`."""
    vectors = await make_embedder(asked.config).embed(asked.questions)
    results: dict[str, list[Retrieval]] = {}
    for way in WAYS:
        retrieval = asked.config.retrieval.model_copy(update={"local_entities": way})
        engine = make_engine(asked.config.model_copy(update={"retrieval": retrieval}), asked.snapshot, Prompts())
        results[way] = [
            await engine.retrieve(Query(text, mode, vector=vector))
            for text, vector in zip(asked.questions, vectors, strict=True)
        ]
        await engine.close()
    index, facts = MappedIndex.open(asked.snapshot), FactIndex(asked.snapshot)
    ids = asked.snapshot.table("entities", ["entity_id"])["entity_id"].to_pylist()
    names = [_names(index, ids, text) for text in asked.questions]
    mentions = _mentions(asked)
    found: dict[str, list[Row]] = {way: [] for way in WAYS}
    for place, results_of in enumerate(zip(*results.values(), strict=True)):
        for way, result in zip(WAYS, results_of, strict=True):
            row = _context_figures(result, asked, place, facts) | _name_figures(result, names[place])
            entered, left = _displaced(result, results_of[0])
            row |= {"entered": len(entered), "left": len(left)}
            if asked.gold is not None:
                row |= _in_gold(entered, left, names[place], mentions, asked.gold[place])
            found[way].append(row)
    return found


def _names(index: MappedIndex, ids: Sequence[str], question: str) -> Names:
    """Return the names in a question."""
    spelled = spelled_words(question)
    spans: dict[tuple[int, int], list[str]] = {}
    for start, end, row in index.name_phrases(question):
        spans.setdefault((start, end), []).append(ids[row])
    letters = {span: "".join(spelled[slice(*span)]) for span in spans}
    return [
        (letters[span] != letters[span].lower() or any(map(str.isdigit, letters[span])), frozenset(own))
        for span, own in spans.items()
    ]


def _name_figures(result: Retrieval, names: Names) -> Row:
    local = {item.entity_id for item in result.local}
    shown = {own for ref, own in result.context_refs.items() if ref.startswith("E")}
    return {
        "named": _mean([bool(own & local) for _, own in names]),
        "proper": _mean([bool(own & local) for proper, own in names if proper]),
        "named shown": _mean([bool(own & shown) for _, own in names]),
    }


def _context_figures(result: Retrieval, asked: Asked, place: int, facts: FactIndex) -> Row:
    row: Row = {"tokens": result.context_tokens, "facts": facts.count(result.context)}
    row["repetition"] = repetition(result.context)
    if asked.gold is not None:
        gold = asked.gold[place]
        first = {asked.passage[source.chunk_id] for source in result.sources[:5]}
        shown = {asked.passage[own] for ref, own in result.context_refs.items() if ref.startswith("S")}
        row |= {"recall@5": len(gold & first) / len(gold), "shown": len(gold & shown) / len(gold)}
    if asked.points is not None:
        row["points"] = asked.points[place].held(result.context)
    return row


def _displaced(result: Retrieval, nearest: Retrieval) -> tuple[set[str], set[str]]:
    """Return the entities of the local level that the nearest are not, and those that they are instead."""
    own, other = ({item.entity_id for item in found.local} for found in (result, nearest))
    return own - other, other - own


def _in_gold(
    entered: set[str], left: set[str], names: Names, mentions: Mapping[str, frozenset[str]], gold: frozenset[str]
) -> Row:
    proper = {own for is_proper, entities in names for own in entities if is_proper}
    chosen = {"entered": entered, "proper": entered & proper, "left": left}
    return {f"{name} in gold": _mean([bool(mentions[one] & gold) for one in own]) for name, own in chosen.items()}


def _mentions(asked: Asked) -> dict[str, frozenset[str]]:
    """Return entity → passages that mention it."""
    rows = asked.snapshot.table("entities", ["entity_id", "chunk_ids"]).to_pylist()
    return {
        row["entity_id"]: frozenset(asked.passage[own] for own in row["chunk_ids"] if own in asked.passage)
        for row in rows
    }


def _mean(values: Sequence[bool]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _lines(measured: Mapping[str, list[Row]]) -> Iterator[dict[str, Any]]:
    for way, rows in measured.items():
        line: dict[str, Any] = {"local_entities": way, "questions": len(rows)}
        columns = {figure: _column(rows, figure) for figure in rows[0]}
        line |= {figure: round(float(np.nanmean(own)), 4) for figure, own in columns.items() if not np.isnan(own).all()}
        if way != WAYS[0]:
            base = measured[WAYS[0]]
            line["more"] = {
                figure: interval(change[~np.isnan(change)])
                for figure in rows[0]
                if figure not in ("entered", "left") and not figure.endswith("in gold")
                for change in [_column(rows, figure) - _column(base, figure)]
                if not np.isnan(change).all()
            }
        yield line


def _column(rows: list[Row], figure: str) -> NDArray[np.float64]:
    return np.array([row[figure] for row in rows], np.float64)


if __name__ == "__main__":
    main()
