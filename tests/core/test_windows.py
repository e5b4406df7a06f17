"""Sizes of prompts and replies that fit a context window."""

from __future__ import annotations

import pytest

from hirag_dist.core.prompts.reply_limits import (
    ANSWER,
    DESCRIPTION,
    META_TYPES,
    REPORT,
    SUMMARY,
    cut_evenly,
    cut_text,
    prompt_room,
    reply_tokens,
    text_room,
    usable_tokens,
)


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("window", [512, 4096, 131_072])
@pytest.mark.parametrize("share", [ANSWER, DESCRIPTION, META_TYPES, REPORT, SUMMARY])
def test_instructions_text_and_reply_leave_a_fifth_of_the_window_free(window: int, share: object) -> None:
    reply = reply_tokens(window, share)  # type: ignore[arg-type]
    assert 150 + prompt_room(window, 150, reply) + reply < usable_tokens(window) <= 0.8 * window


def test_a_text_and_the_reply_that_grows_with_it_fit() -> None:
    size = text_room(2048, 240, written=2.0, shown=0.5)
    assert 240 + size * (1 + 2.0 + 0.5) <= usable_tokens(2048)
    assert 240 + (size + 20) * (1 + 2.0 + 0.5) > usable_tokens(2048)


def test_the_longest_texts_are_cut_and_short_ones_stay() -> None:
    texts = ["a b", "c d e f g h i j", "k l m n o p q r s t"]
    cut = cut_evenly(texts, 10, words)
    assert cut[0] == "a b"
    assert sum(map(words, cut)) <= 10
    assert all(words(text) >= 3 for text in cut[1:])
    assert cut_evenly(texts, 20, words) == texts
    assert cut_text("one two three four", 2, words) in ("one two…", "one…")
    assert cut_text("one two", 2, words) == "one two"
