"""The shipped encodings are the published ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.text.tokens import chunk_spans, counter, encoding, text_halves
from hirag_dist.errors import ConfigError

O200K = encoding("o200k_base")
PROSE = " ".join(f"Sentence number {n} says something about topic {n % 7}." for n in range(300))


def cut(text: str, size: int = 50, overlap: int = 10, at_sentences: bool = True) -> list[str]:
    return [text[span.start : span.end] for span in chunk_spans(text, O200K, size, overlap, at_sentences)]


CHINESE = "".join(f"第{n}句话说了一些关于主题的事情。" for n in range(60))


@pytest.mark.parametrize(
    ("text", "overlap", "start", "end"), [(PROSE, 15, "Sentence number", "."), (CHINESE, 0, "第", "。")]
)
def test_chunks_end_and_begin_at_sentences(text: str, overlap: int, start: str, end: str) -> None:
    chunks = cut(text, 60, overlap)
    assert len(chunks) > 10
    assert all(chunk.startswith(start) and chunk.endswith(end) for chunk in chunks)


def test_text_without_a_space_is_cut_at_tokens() -> None:
    unbroken = "".join(random.Random(1).choices("abcdefghij", k=900))
    chunks = cut(unbroken, size=40, overlap=0)
    assert "".join(chunks) == unbroken
    assert max(len(O200K.encode_ordinary(chunk)) for chunk in chunks) <= 41


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=400),
    size=st.integers(16, 40),
    overlap=st.integers(0, 15),
    at_sentences=st.booleans(),
)
def test_every_visible_character_is_in_a_chunk(text: str, size: int, overlap: int, at_sentences: bool) -> None:
    spans = chunk_spans(text, O200K, size, overlap, at_sentences)
    covered = {at for span in spans for at in range(span.start, span.end)}
    assert {at for at, letter in enumerate(text) if not letter.isspace()} <= covered
    assert all(text[span.start : span.end].strip() == text[span.start : span.end] for span in spans)


def test_an_overlap_as_large_as_the_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        chunk_spans("text", O200K, 10, 10, at_sentences=True)


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_windows_over_characters_of_several_tokens_end_before_the_cut_character(name: str) -> None:
    """Every window of tokens, cut back to whole characters on both sides, is a chunk, in order, and nothing else is."""
    encode = encoding(name)
    rng = random.Random(3)
    pieces = ["🧑🏽‍🚀", "𝄞", "🜁", "中", "字。", " the", " word", "é", "ع", "ﷺ", "ༀ", "\n", "  ", "𠜎", "नमस्ते"]
    pieces.append("<|endoftext|>")  # ordinary text, as all is
    for _ in range(30):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 200)))
        tokens = encode.encode_ordinary(text)
        size = rng.randint(1, 30)
        overlap = rng.randint(0, size - 1)
        windows = []
        for first in range(0, len(tokens), size - overlap):
            start, end = (
                len(encode.decode_bytes(tokens[:cut]).decode("utf-8", "ignore")) for cut in (first, first + size)
            )
            windows.append(text[start:end].strip())
        spans = chunk_spans(text, encode, size, overlap, at_sentences=False)
        assert [text[span.start : span.end] for span in spans] == [window for window in windows if window]


def test_the_default_cut_by_tokens_is_nano_graphrags() -> None:
    """1,200 tokens, 100 shared: a window every 1,100 tokens, the last one however short."""
    tokens = O200K.encode_ordinary(PROSE * 2)
    windows = [O200K.decode(tokens[first : first + 1200]).strip() for first in range(0, len(tokens), 1100)]
    assert len(windows) > 5
    assert cut(PROSE * 2, size=1200, overlap=100, at_sentences=False) == windows


@pytest.mark.parametrize("at_sentences", [True, False])
def test_the_tokens_of_a_window_are_about_those_of_its_text(at_sentences: bool) -> None:
    """A window begins and ends at tokens of the document, which the text of the chunk alone may cut otherwise."""
    spans = chunk_spans(PROSE * 3, O200K, 64, 8, at_sentences)
    text = PROSE * 3
    alone = [len(O200K.encode_ordinary(text[span.start : span.end])) for span in spans]
    assert all(span.n_tokens <= 64 for span in spans)
    assert max(abs(count - span.n_tokens) for count, span in zip(alone, spans, strict=True)) <= 3


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("It was late. So.\n\nThe ship left. It rained.", "It was late. So.\n\n"),
        ("Ada wrote. Bob read it.", "Ada wrote. "),
        ("one two three four", "one two "),
        ("船在夜里离开。雨下了一整夜。", "船在夜里离开。"),
        ("x" * 9, "xxxx"),
        ("A. " + "x" * 40, "A. " + "x" * 18),  # an end near the border is not taken
        ("", ""),
    ],
)
def test_the_best_end_in_the_middle_half(text: str, first: str) -> None:
    assert text_halves(text) == (first, text[len(first) :])


PUBLISHED = [
    ("cl100k_base", "hello world", [15339, 1917]),
    ("cl100k_base", " \x850", [220, 126, 227, 15]),
    ("o200k_base", "hello world", [24912, 2375]),
    ("o200k_base", "お誕生日おめでとう", [8930, 9697, 243, 128225, 8930, 17693, 4344, 48669]),
]


@pytest.mark.parametrize(("name", "text", "tokens"), PUBLISHED)
def test_the_published_tokens_are_given(name: str, text: str, tokens: list[int]) -> None:
    assert encoding(name).encode_ordinary(text) == tokens
    assert counter(name)(text) == len(tokens)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="o200k_base"):
        encoding("gpt2")
