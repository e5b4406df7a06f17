"""The gain of each level in a context: tokens, evidence, distinct facts, repetition, and points of recorded answers.

    python benchmarks/levels.py FOLDER… [--mix DATA] [--index DIR] [--embedder hashing|minilm] [--ways NAME …]
        [--multi-hop]

FOLDER: a set of `source_ranking.py`. DATA: the folder of the public data sets, for the corpus-wide questions of
`qfs_mix` and the answers that eight methods gave to them. A line of JSON for each set and way, with the differences to
`hirag` and their 95 % intervals (paired bootstrap over questions), and one for what each level adds to those before it.
No model is asked but the embedder. Figures of a question:

    tokens        of the context
    recall@5      share of the gold passages among the first 5 sources
    all@5         whether all of them are
    shown         share of the gold passages whose chunk is in the context
    facts         distinct entities named in the context, and related pairs of them named within one record or 60 words
    facts/1000    the same for each 1,000 tokens
    repetition    share of the context's word 5-grams that occurred before in it
    points        share of the points of the recorded answers that the context holds; a point is a sentence that the
                  corpus holds, and a text holds it if some 60 successive words of it have half of the sentence's words,
                  weighted by rarity
    points/1000   points held for each 1,000 tokens
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bridge_ranking import configured, interval
from benchmarks.context_counts import FactIndex, Points, read_points, repetition
from benchmarks.source_ranking import cases, options, passages_of_chunks
from hirag_dist.composition.query import make_engine
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query, Retrieval

HALF = {"context_tokens": 4000}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "naive": ("naive", {}),
    "flat": ("flat", {}),
    "local": ("local", {}),
    "nobridge": ("nobridge", {}),
    "hirag": ("hirag", {}),
    "hirag, coverage": ("hirag", {"selection": "coverage"}),
    "hirag, hierarchy": ("hirag", {"bridge_paths": "hierarchy"}),
    "lean": ("lean", {}),
    "lean, 10 chunks": ("lean", {"lean": {"top_sources": 10}}),
    "naive, half": ("naive", HALF),
    "flat, half": ("flat", HALF),
    "nobridge, half": ("nobridge", HALF),
    "hirag, half": ("hirag", HALF),
    "global": ("global", {}),
    "global, coverage": ("global", {"selection": "coverage"}),
}
BASE = "hirag"
STEPS = {  # comparisons: a way, and the one that it is compared with
    "summary entities": ("local", "flat"),
    "reports": ("nobridge", "local"),
    "bridge": ("hirag", "nobridge"),
    "all of the hierarchy": ("hirag", "flat"),
    "coverage": ("hirag, coverage", "hirag"),
    "lean for hirag, half": ("lean", "hirag, half"),
    "lean for flat, half": ("lean", "flat, half"),
}
EVIDENCE = ("recall@5", "all@5", "shown")
COUNTS = ("tokens", "facts", "facts/1000", "repetition")
POINTS = ("points", "points/1000")

Row = dict[str, float]


@dataclass(frozen=True)
class Asked:
    """Questions of one index, and what is counted of each.

    Attributes:
        gold: passages of each question; None where none are known.
        points: of the recorded answers to each question; None where there are none.
    """

    name: str
    config: Config
    snapshot: Snapshot
    questions: list[str]
    passage: Mapping[str, str]
    gold: list[frozenset[str]] | None
    points: list[Points] | None


def main() -> None:
    parser = options(__doc__, folders="*")
    add_mix(parser)
    parser.add_argument("--multi-hop", action="store_true", help="leave out questions for which one source is enough")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    arguments = parser.parse_args()
    ways = tuple(dict.fromkeys((BASE, *arguments.ways)))
    together: dict[str, list[list[Row]]] = {}
    for case in cases(arguments):
        chunks = passages_of_chunks(case.snapshot, case.passages)
        for name, single, chosen in case.kinds():
            if single and arguments.multi_hop:
                continue
            asked = [question for question, kept in zip(case.questions, chosen, strict=True) if kept]
            texts, gold = [question.text for question in asked], [question.gold for question in asked]
            one = Asked(name, case.config, case.snapshot, texts, chunks, gold, None)
            measured = asyncio.run(measure(one, ways))
            report(arguments.embedder, name, measured)
            for way, rows in measured.items() if not single else ():
                together.setdefault(way, []).append(rows)
    if len(arguments.folders) > 1:
        report(
            arguments.embedder,
            "multi-hop, together",
            {way: [row for rows in sets for row in rows] for way, sets in together.items()},
        )
    if arguments.mix:
        report(arguments.embedder, "mix", asyncio.run(measure(mix(arguments), ways)))


def add_mix(parser: argparse.ArgumentParser) -> None:
    """Add the option that `mix` reads."""
    parser.add_argument("--mix", type=Path, metavar="DATA", help="folder of the public data sets")


def mix(arguments: argparse.Namespace) -> Asked:
    """Return the corpus-wide questions of Mix; their index is `mix-EMBEDDER` in the folder of indexes."""
    data: Path = arguments.mix
    snapshot = open_snapshot(Store(str(arguments.index / f"mix-{arguments.embedder}")))
    texts, points = read_points(data / "qfs_mix", snapshot.table("chunks", ["text"])["text"].to_pylist())
    return Asked("mix", configured(data / "qfs_mix", arguments.embedder), snapshot, texts, {}, None, points)


async def measure(asked: Asked, ways: Iterable[str]) -> dict[str, list[Row]]:
    """Return the figures of every question, by way."""
    embedder = make_embedder(asked.config)
    vectors = [(await embedder.embed([text]))[0] for text in asked.questions]
    facts = FactIndex(asked.snapshot)
    found: dict[str, list[Row]] = {}
    for way in ways:
        mode, changed = WAYS[way]
        kept = asked.config.retrieval.model_dump() | {"local_entities": "nearest"}  # `local_entities.py` compares both
        settings = asked.config.retrieval.model_validate(kept | changed)
        engine = make_engine(asked.config.model_copy(update={"retrieval": settings}), asked.snapshot, Prompts())
        found[way] = []
        for place, (text, vector) in enumerate(zip(asked.questions, vectors, strict=True)):
            started = time.process_time()
            result = await engine.retrieve(Query(text, mode, vector=vector))
            took = time.process_time() - started
            found[way].append({"cpu_ms": took * 1e3} | _figures(result, asked, place, facts))
        await engine.close()
    return found


def _figures(result: Retrieval, asked: Asked, place: int, facts: FactIndex) -> Row:
    n_facts = facts.count(result.context)
    thousands = max(result.context_tokens, 1) / 1000
    row: Row = {"tokens": result.context_tokens, "facts": n_facts, "facts/1000": n_facts / thousands}
    row["repetition"] = repetition(result.context)
    if asked.gold is not None:
        gold = asked.gold[place]
        first = {asked.passage[source.chunk_id] for source in result.sources[:5]}
        shown = {asked.passage[own] for ref, own in result.context_refs.items() if ref.startswith("S")}
        recall = len(gold & first) / len(gold)
        row |= {"recall@5": recall, "all@5": float(recall == 1), "shown": len(gold & shown) / len(gold)}
    if asked.points is not None:
        held = asked.points[place].held(result.context)
        row |= {"points": held, "points/1000": held * len(asked.points[place]) / thousands}
    return row


def report(embedder: str, name: str, measured: Mapping[str, list[Row]]) -> None:
    """Print a line for each way and for each of `STEPS`."""
    for way, rows in measured.items():
        line: dict[str, Any] = {"benchmark": "levels", "set": name, "embedder": embedder, "way": way}
        line["questions"] = len(rows)
        line["cpu_ms"] = round(float(np.median([row["cpu_ms"] for row in rows])), 2)
        figures = [figure for figure in (*EVIDENCE, *COUNTS, *POINTS) if figure in rows[0]]
        line |= {figure: round(float(np.nanmean(_column(rows, figure))), 4) for figure in figures}
        if way != BASE:
            base = measured[BASE]
            line[f"more than {BASE}"] = {
                figure: interval(_column(rows, figure) - _column(base, figure)) for figure in figures
            }
            share = _column(rows, "tokens") / np.maximum(_column(base, "tokens"), 1)
            line[f"tokens of {BASE}"] = {
                "mean": round(float(share.mean()), 3),
                "p95": round(float(np.percentile(share, 95)), 3),
            }
        print(json.dumps(line), flush=True)

    for step, (way, other) in STEPS.items():
        if way in measured and other in measured:
            figures = [figure for figure in (*EVIDENCE, *COUNTS, *POINTS) if figure in measured[way][0]]
            added = {
                figure: interval(_column(measured[way], figure) - _column(measured[other], figure))
                for figure in figures
            }
            line = {"benchmark": "levels", "set": name, "embedder": embedder, "step": step, "added": added}
            print(json.dumps(line), flush=True)


def _column(rows: list[Row], figure: str) -> NDArray[np.float64]:
    return np.array([row[figure] for row in rows], np.float64)


if __name__ == "__main__":
    main()
