"""Comparison of hirag-dist with other graph-RAG packages: one corpus, one simulated endpoint, one table.

    python -m benchmarks.peers --corpus CORPUS.jsonl --questions QUESTIONS.jsonl [--fraction 0.1] [--peers all]
        --out DIR [--reference CHECKOUT]

Each package gets an environment of its own at first use (pip; kept under --cache), a fresh endpoint in a process of its
own, and a process for each phase: index, then questions. One package at a time. Prints a JSON line a package, and keeps
them in DIR/rows.jsonl with DIR/table.md; a package that is done is not run again, one that failed is.
docs/research/comparisons.md describes the columns and their limits.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.peers import table
from benchmarks.peers.corpus import CorpusRefused, take
from benchmarks.peers.metering import adopt_orphans
from benchmarks.peers.runner import PEERS, REFERENCE, Settings, measure
from benchmarks.settings import rows_of


def main() -> None:
    arguments = _arguments()
    names = list(PEERS) if "all" in arguments.peers else list(dict.fromkeys(arguments.peers))
    if arguments.reference is not None:
        names.append("hirag-reference")
    questions = arguments.questions or arguments.corpus.with_name("queries.jsonl")
    out = arguments.out.resolve()
    try:
        corpus = take(arguments.corpus, questions, arguments.fraction, out)
    except (CorpusRefused, OSError) as error:
        sys.exit(f"peers: {error}")
    settings = Settings(
        corpus=corpus,
        out=out,
        cache=arguments.cache.expanduser().resolve(),
        dim=arguments.dim,
        clients=arguments.clients,
        timeout_s=60 * arguments.timeout_min,
        reference=arguments.reference.resolve() if arguments.reference else None,
    )
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what was started is ended
    path = out / "rows.jsonl"
    rows = read_rows(path)
    for name in names:
        if not arguments.again and is_done(rows, name, corpus.digest):
            continue
        row = measure(name, PEERS.get(name, REFERENCE), settings)
        print(json.dumps(row), flush=True)
        rows = with_row(rows, row)
        _write(path, "".join(json.dumps(each) + "\n" for each in rows))
        _write(out / "table.md", table.markdown(rows))
    console = Console(stderr=True, width=200)
    for each in table.terminal([row for row in rows if row["digest"] == corpus.digest and "failed" not in row]):
        console.print(each)
    for row in rows:
        if "failed" in row:
            console.print(f"{row['peer']} failed: {row['failed']}", markup=False)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows that a file holds; none where there is no file."""
    if not path.exists():
        return []
    return list(rows_of(path))


def with_row(rows: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with one more, in the place of what it replaces; those of a corpus stand in one order."""
    key = row["peer"], row["digest"]
    order = {name: place for place, name in enumerate(PEERS)}
    corpora = list(dict.fromkeys([*(each["digest"] for each in rows), row["digest"]]))
    return sorted(
        [*(each for each in rows if (each["peer"], each["digest"]) != key), row],
        key=lambda each: (corpora.index(each["digest"]), order.get(each["peer"], len(order))),
    )


def is_done(rows: list[dict[str, Any]], name: str, digest: str) -> bool:
    """Return whether a package has a row for these documents and questions that did not fail."""
    return any(row["peer"] == name and row["digest"] == digest and "failed" not in row for row in rows)


def _write(path: Path, text: str) -> None:
    whole = path.with_name(path.name + ".new")
    whole.write_text(text, encoding="utf-8")
    whole.replace(path)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True, help="JSON lines with a field `text`")
    parser.add_argument(
        "--questions", type=Path, help="JSON lines with `query`; default: queries.jsonl in the folder of the corpus"
    )
    parser.add_argument("--fraction", type=float, default=1.0, help="share of the documents, from the first on")
    parser.add_argument("--peers", nargs="+", default=["all"], choices=["all", *PEERS], metavar="PEER")
    parser.add_argument("--reference", type=Path, metavar="CHECKOUT", help="also run the HiRAG reference from there")
    parser.add_argument("--out", type=Path, required=True, help="folder of rows, logs and indexes")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/hirag-dist/peers"), help="folder of environments")
    parser.add_argument("--dim", type=int, default=384, help="size of the embedding vectors")
    parser.add_argument("--clients", type=int, default=16, help="who ask at the same time")
    parser.add_argument("--timeout-min", type=float, default=15.0, help="minutes that a phase may take")
    parser.add_argument("--again", action="store_true", help="also what has a row")
    return parser.parse_args()


if __name__ == "__main__":
    main()
