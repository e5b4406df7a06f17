"""Documents and questions of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hirag_dist.core.text.tokens import counter

_SHARES = {"warm": 0.04, "alone": 0.32, "context": 0.32, "clients": 0.32}  # of the questions, none asked twice


class CorpusRefused(Exception):
    """A corpus or its questions cannot be used; the message says why."""


@dataclass(frozen=True)
class Corpus:
    """The documents that are indexed.

    Attributes:
        path: JSON lines with `doc_id` and `text`, only those of this run.
        name: for tables.
        questions: that are asked.
        n_documents, n_tokens: size, in cl100k tokens.
        digest: of documents and questions.
    """

    path: Path
    name: str
    questions: tuple[str, ...]
    n_documents: int
    n_tokens: int
    digest: str

    def figures(self) -> dict[str, Any]:
        """Return the figures of the corpus in a row."""
        return {"corpus": self.name, "documents": self.n_documents, "tokens": self.n_tokens, "digest": self.digest}

    def parts(self) -> dict[str, list[str]]:
        """Return the questions of each part of a query phase; no question is in two."""
        return split(self.questions)


def split(questions: Sequence[str]) -> dict[str, list[str]]:
    """Return the questions of each part, in order; each part has one at least.

    Raises:
        CorpusRefused: fewer questions than parts.
    """
    if len(questions) < len(_SHARES):
        raise CorpusRefused(f"at least {len(_SHARES)} questions are needed, there are {len(questions)}")
    parts: dict[str, list[str]] = {}
    start, left = 0, len(_SHARES)
    for part, share in _SHARES.items():
        left -= 1
        size = min(max(round(share * len(questions)), 1), len(questions) - start - left)
        parts[part] = list(questions[start : start + size])
        start += size
    return parts


def take(corpus: Path, questions: Path, fraction: float, folder: Path) -> Corpus:
    """Return the first documents of a corpus, written to a folder.

    Args:
        corpus: JSON lines with `text`; `doc_id` where they have one.
        questions: JSON lines with `query` or `question`.
        fraction: share of the documents, above 0 to 1; at least one is taken.

    Raises:
        CorpusRefused: a file holds nothing, or something else.
    """
    if not 0 < fraction <= 1:
        raise CorpusRefused(f"--fraction must be above 0 and at most 1, got {fraction:g}")
    every = _texts(corpus, ("text",))
    texts = every[: max(round(fraction * len(every)), 1)]
    asked = tuple(dict.fromkeys(_texts(questions, ("query", "question"))))
    split(asked)
    lines = "".join(json.dumps({"doc_id": f"d{number:05}", "text": text}) + "\n" for number, text in enumerate(texts))
    path = folder / "corpus.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(lines, encoding="utf-8")
    count = counter("cl100k_base")
    digest = hashlib.sha256(lines.encode() + json.dumps(asked).encode()).hexdigest()[:12]
    return Corpus(path, corpus.parent.name, asked, len(texts), sum(map(count, texts)), digest)


def _texts(path: Path, fields: Sequence[str]) -> list[str]:
    found: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise CorpusRefused(f"{path}, line {number}: not JSON ({error})") from error
        text = next((row[field] for field in fields if isinstance(row, dict) and row.get(field)), None)
        if not isinstance(text, str):
            raise CorpusRefused(f"{path}, line {number}: no text in {' or '.join(fields)}")
        found.append(text)
    if not found:
        raise CorpusRefused(f"{path} holds nothing")
    return found
