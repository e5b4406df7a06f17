"""BM25 over an inverted index gives the scores of the formula, over the chunks that the caller sees alone."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.retrieval import lexical
from hirag_dist.core.retrieval.lexical import (
    K1,
    B,
    LexicalIndex,
    LexicalIndexBuilder,
    LexicalPart,
    best_chunks,
    term_frequencies,
    visible_chunks,
)
from hirag_dist.core.text.terms import terms

WORDS = st.sampled_from(["a", "b", "c", "dog", "AB-12", "12", "東京都", "京都", "ghost", "x"])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=12)


def index_of(texts: list[str], *, at_a_time: int = 4) -> LexicalIndex:
    builder = LexicalIndexBuilder()
    for first in range(0, len(texts), at_a_time):
        some = texts[first : first + at_a_time]
        builder.add(np.arange(first, first + len(some)), some)
    return builder.built(len(texts))


def parts_of(texts: list[str]) -> list[LexicalPart]:
    return [LexicalPart(index_of(texts))]


def slow(texts: list[str], question: str, visible: list[bool]) -> dict[int, float]:
    """Return the scores by the formula, over the visible texts alone."""
    counts = {row: Counter(terms(text)) for row, text in enumerate(texts) if visible[row]}
    average = sum(map(Counter.total, counts.values())) / max(len(counts), 1)
    scores: dict[int, float] = {}
    for term in set(terms(question)):
        having = [row for row in counts if counts[row][term]]
        idf = math.log(1 + (len(counts) - len(having) + 0.5) / (len(having) + 0.5))
        for row in having:
            count = counts[row][term]
            norm = K1 * (1 - B + B * counts[row].total() / average)
            scores[row] = scores.get(row, 0.0) + idf * count * (K1 + 1) / (count + norm)
    return scores


@settings(deadline=None, max_examples=40, derandomize=True)
@given(TEXTS, st.lists(WORDS, max_size=6).map(" ".join), st.integers(0, 2**12), st.integers(0, 15))
def test_the_best_chunks_are_those_of_the_formula(texts: list[str], question: str, seen: int, limit: int) -> None:
    visible = [bool(seen >> row & 1) for row in range(len(texts))]
    index = parts_of(texts)
    rows, scores = best_chunks(index, terms(question), limit, visible_chunks(index, np.array(visible, np.bool_)))
    expected = slow(texts, question, visible)
    assert dict(zip(rows.tolist(), scores.tolist(), strict=True)) == pytest.approx(
        {row: expected[row] for row in rows.tolist()}
    )
    assert len(rows) == min(limit, len(expected))
    assert list(zip(-scores, rows, strict=True)) == sorted(zip(-scores, rows, strict=True))
    left_out = [score for row, score in expected.items() if row not in rows.tolist()]
    assert not len(rows) or max(left_out, default=0.0) <= scores[-1] + 1e-9


@settings(deadline=None, max_examples=40, derandomize=True)
@given(TEXTS, st.lists(WORDS, max_size=6).map(" ".join), st.integers(0, 2**12))
def test_hidden_chunks_change_no_bit(texts: list[str], question: str, seen: int) -> None:
    visible = np.array([bool(seen >> row & 1) for row in range(len(texts))], np.bool_)
    kept = np.flatnonzero(visible)
    index, alone = parts_of(texts), parts_of([texts[row] for row in kept.tolist()])
    rows, scores = best_chunks(index, terms(question), 5, visible_chunks(index, visible))
    rows_alone, scores_alone = best_chunks(alone, terms(question), 5, visible_chunks(alone, None))
    assert rows.tolist() == kept[rows_alone].tolist()
    assert scores.tobytes() == scores_alone.tobytes()


@settings(deadline=None, max_examples=40, derandomize=True)
@given(TEXTS, st.lists(WORDS, max_size=6).map(" ".join), st.integers(0, 2**12), st.integers(0, 3**12), st.booleans())
def test_an_index_in_two_parts_changes_no_bit(
    texts: list[str], question: str, seen: int, lies: int, is_masked: bool
) -> None:
    where = [lies // 3**row % 3 for row in range(len(texts))]  # in the first part, in the second, or nowhere
    rows = {part: [row for row, own in enumerate(where) if own == part] for part in range(3)}
    now = sorted(rows[0] + rows[1])
    first = index_of([texts[row] for row in rows[0] + rows[2]])  # chunks that are gone are still in it
    own = np.array([now.index(row) for row in rows[0]] + [-1] * len(rows[2]), np.int32)
    second = LexicalPart(index_of([texts[row] for row in rows[1]]), np.array([now.index(row) for row in rows[1]], "i4"))
    parts = [LexicalPart(first, own, term_frequencies(first, own >= 0)), second]
    whole = parts_of([texts[row] for row in now])
    mask = np.array([bool(seen >> row & 1) for row in now], np.bool_) if is_masked else None
    found = [best_chunks(each, terms(question), 5, visible_chunks(each, mask)) for each in (parts, whole)]
    assert [array.tobytes() for array in found[0]] == [array.tobytes() for array in found[1]]
    merged = LexicalIndexBuilder().built(len(now), parts, np.arange(len(now)))
    assert [array.tobytes() for array in merged] == [array.tobytes() for array in whole[0].index]


def test_the_most_frequent_words_do_not_count_where_there_is_too_much_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"the number {row}" for row in range(20)]
    index = parts_of(texts)
    monkeypatch.setattr(lexical, "MAX_POSTINGS", 10)
    rows, _ = best_chunks(index, terms("the 7"), 20, visible_chunks(index, None))
    assert rows[0] == 7
    assert len(rows) == 20, "the first term that passes the limit is still read"
    rows, _ = best_chunks(index, terms("the number 7"), 20, visible_chunks(index, None))
    alone = best_chunks(index, terms("7 number the"), 20, visible_chunks(index, None))[0]
    assert rows.tolist() == alone.tolist()
