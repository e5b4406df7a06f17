"""A corpus of few documents with questions, indexed by the command with the built-in model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hirag_dist.cli import main

DOCUMENTS = [
    ("D/1", "Ada", "Ada Lovelace wrote notes on the Analytical Engine that Charles Babbage designed in London."),
    ("D/2", "Engine", "The Analytical Engine was a mechanical computer. Charles Babbage designed it in London."),
    ("d/3", "Whales", "Blue whales live in the Southern Ocean. They eat krill."),
    ("d/4", "Krill", "Krill are small animals of the Southern Ocean. Penguins eat krill."),
    ("d/5", "Tea", "Tea is grown in Assam. Ships brought tea from Assam to London."),
    ("d/6", "Whales again", "Blue whales live in the Southern Ocean. They eat krill."),  # the text of d/3
]
QUESTIONS: list[dict[str, Any]] = [
    {"id": "q1", "question": "Who designed the Analytical Engine?", "gold": ["D/1", "D/2"], "type": "multi"},
    {"id": "q2", "question": "What do blue whales eat?", "gold": ["d/6"], "type": "single"},
    {"id": "q3", "question": "Where is tea grown?", "gold": ["d/5"], "type": "single"},
    {"id": "q4", "question": "Who eats krill in the Southern Ocean?", "gold": ["d/3", "d/4"], "type": "multi"},
]


def write_lines(file: Path, rows: list[Any]) -> Path:
    """Write JSON Lines; strings stand as they are."""
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def write_corpus(folder: Path) -> Path:
    """Write the documents."""
    records = [{"passage_id": own, "title": title, "text": text} for own, title, text in DOCUMENTS]
    return write_lines(folder / "corpus.jsonl", records)


def run(capfd: Any, monkeypatch: Any, *arguments: object) -> tuple[int, Any]:
    """Run the command in this process; return its exit code and the object on stdout."""
    import os
    import sys

    monkeypatch.setattr(sys, "argv", ["hirag-dist", *map(str, arguments), "--json"])
    stdout = os.dup(1)
    try:
        main.main()
        raise AssertionError("the command did not exit")
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os.dup2(stdout, 1)  # --json has taken it, for good
        os.close(stdout)
    said = capfd.readouterr().out
    return code, json.loads(said) if said.strip() else None
