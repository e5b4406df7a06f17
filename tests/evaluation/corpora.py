"""A corpus of few documents with questions, indexed by the command with the built-in model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
