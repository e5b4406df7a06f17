from __future__ import annotations

import io

import pytest

from hirag_dist.readers.lines import text_lines
from hirag_dist.readers.model import InputTooLarge


def lines(data: bytes, limit: int = 1 << 20) -> list[str]:
    return list(text_lines(io.BufferedReader(io.BytesIO(data)), limit))


def test_line_ends() -> None:
    assert lines(b"a\nb\r\nc\rd\n\ne") == ["a", "b", "c", "d", "", "e"]
    assert lines(b"a\n") == ["a"]
    assert lines(b"") == []


def test_no_line_is_added_between_batches() -> None:
    data = b"0123456789\n" * 300_000
    assert lines(data) == ["0123456789"] * 300_000


def test_utf16_lines() -> None:
    assert lines("a\r\nbé\n".encode("utf-16")) == ["a", "bé"]


def test_a_line_beyond_the_limit() -> None:
    stream = text_lines(io.BufferedReader(io.BytesIO(b"short\n" + b"x" * 100)), 50)
    assert next(stream) == "short"
    with pytest.raises(InputTooLarge, match="longer than 50"):
        next(stream)
