"""Counts of what a context holds, without a model: facts of the index, repetition, and points of recorded answers."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from benchmarks.jsonl import rows_of
from hirag_dist.core.retrieval.support import sentence_spans
from hirag_dist.storage.snapshot.reader import Snapshot

WINDOW: Final = 60  # words within which a statement stands
STEP: Final = 30
HELD: Final = 0.5  # share of a point's words, by rarity
POINTS: Final = 40  # of a question, chosen by hash
_MIN_WORDS: Final = 5  # of a point
_GRAM: Final = 5
_MAX_NAME: Final = 6  # words
_MIN_NAME: Final = 4  # characters
_WORD: Final = re.compile(r"[^\W_]+")
_REFERENCE: Final = re.compile(r"^\[[A-Z]\d+\]", re.MULTILINE)
_STEM: Final = 6  # characters of a word that are compared, as in `support`

Words = list[str]


def words_of(text: str) -> Words:
    """Return the words of a text without references, in small letters."""
    return _WORD.findall(_REFERENCE.sub("", text).casefold())


def repetition(context: str) -> float:
    """Return the share of word 5-grams that occurred before.

    >>> round(repetition("one two three four five one two three four five"), 2)
    0.17
    """
    words = words_of(context)
    grams = [tuple(words[at : at + _GRAM]) for at in range(len(words) - _GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def windows(words: Sequence[str]) -> list[Sequence[str]]:
    """Return the stretches of `WINDOW` words, one every `STEP`.

    >>> [len(part) for part in windows(["a"] * 100)]
    [60, 60, 40]
    """
    ends = range(0, max(len(words) - STEP, 1), STEP)
    return [words[at : at + WINDOW] for at in ends]


class FactIndex:
    """Names of the extracted entities of an index, and the pairs that a relation joins."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Read the tables of a snapshot."""
        entities = snapshot.table("entities", ["entity_id", "layer", "name"]).to_pylist()
        self._names: dict[tuple[str, ...], str] = {}
        for row in entities:
            name = tuple(words_of(row["name"]))
            if row["layer"] == 0 and 0 < len(name) <= _MAX_NAME and sum(map(len, name)) >= _MIN_NAME:
                self._names.setdefault(name, row["entity_id"])
        self._longest: dict[str, int] = {}  # first word → words of the longest name
        for name in self._names:
            self._longest[name[0]] = max(len(name), self._longest.get(name[0], 0))
        relations = snapshot.table("relations", ["source_id", "target_id", "kind"]).to_pylist()
        self._pairs = {
            frozenset((row["source_id"], row["target_id"])) for row in relations if row["kind"] == "extracted"
        }

    def count(self, context: str) -> int:
        """Return the number of distinct entities named, and of related pairs named within one line or window."""
        entities: set[str] = set()
        pairs: set[frozenset[str]] = set()
        for line in context.splitlines():
            for part in windows(words_of(line)):
                named = set(self._named(part))
                entities |= named
                pairs.update(frozenset(pair) for pair in combinations(sorted(named), 2))
        return len(entities) + len(pairs & self._pairs)

    def _named(self, words: Sequence[str]) -> Iterator[str]:
        at = 0
        while at < len(words):
            step = 1
            for length in range(min(self._longest.get(words[at], 0), len(words) - at), 0, -1):
                entity = self._names.get(tuple(words[at : at + length]))
                if entity is not None:
                    yield entity
                    step = length
                    break
            at += step


class Points:
    """The points of the answers to one question that the corpus holds."""

    def __init__(self, points: Sequence[frozenset[str]], rarity: dict[str, float]) -> None:
        """Take points as sets of word stems."""
        self._points = points
        self._rarity = rarity

    def __len__(self) -> int:
        return len(self._points)

    def held(self, context: str) -> float:
        """Return the share that a context holds; NaN without points."""
        if not self._points:
            return math.nan
        parts = windows([word[:_STEM] for word in words_of(context)])
        return float(np.mean(best_shares(self._points, parts, self._rarity) >= HELD))


def best_shares(
    points: Sequence[frozenset[str]], parts: Iterable[Sequence[str]], rarity: dict[str, float]
) -> NDArray[np.float64]:
    """Return the largest share of the words of each point, by rarity, that one of the parts has: (n_points,)."""
    number = {word: at for at, word in enumerate(sorted(set().union(*points)))}
    weights = np.array([rarity[word] for word in number])
    asked = _table(points, number).multiply(weights).tocsr()
    total = np.asarray(asked.sum(axis=1)).ravel()
    best = np.zeros(len(points))
    rows = [frozenset(part) for part in parts]
    for first in range(0, len(rows), 2000):
        shared = asked @ _table(rows[first : first + 2000], number).T
        best = np.maximum(best, shared.max(axis=1).toarray().ravel())
    shares: NDArray[np.float64] = best / np.maximum(total, 1e-9)
    return shares


def _table(sets: Sequence[frozenset[str]], number: dict[str, int]) -> Any:
    entries = [(at, number[word]) for at, own in enumerate(sets) for word in own if word in number]
    rows, columns = zip(*entries, strict=True) if entries else ((), ())
    return csr_matrix((np.ones(len(entries)), (rows, columns)), shape=(len(sets), len(number)))


def read_points(folder: Path, chunks: Sequence[str]) -> tuple[list[str], list[Points]]:
    """Return the questions of Mix, and the points of each that the corpus holds.

    Args:
        folder: with queries.jsonl and answers.jsonl.
        chunks: texts of the corpus.
    """
    questions = {row["query_id"]: row["query"] for row in rows_of(folder / "queries.jsonl")}
    sentences: dict[str, dict[frozenset[str], str]] = {own: {} for own in questions}
    for row in rows_of(folder / "answers.jsonl"):
        text = re.sub(r"[*#`_]+", "", row["answer"])
        for low, high in sentence_spans(text):
            words = words_of(text[low:high])
            if len(words) >= _MIN_WORDS:
                stems = frozenset(word[:_STEM] for word in words)
                sentences[row["query_id"]].setdefault(stems, text[low:high])
    parts = [part for text in chunks for part in windows([word[:_STEM] for word in words_of(text)])]
    counts = Counter(word for part in parts for word in set(part))
    chosen = {own: _by_hash(found)[:POINTS] for own, found in sentences.items()}
    rarity = {
        word: math.log(1 + len(parts) / max(counts[word], 1))
        for found in chosen.values()
        for point in found
        for word in point
    }
    every = [point for found in chosen.values() for point in found]
    in_corpus = dict(zip(every, (best_shares(every, parts, rarity) >= HELD).tolist(), strict=True))
    points = [Points([point for point in found if in_corpus[point]], rarity) for found in chosen.values()]
    return list(questions.values()), points


def _by_hash(sentences: dict[frozenset[str], str]) -> list[frozenset[str]]:
    return sorted(sentences, key=lambda stems: hashlib.sha256(sentences[stems].encode()).hexdigest())
