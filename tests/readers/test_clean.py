from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.readers import clean_text
from hirag_dist.readers.encoding import cleaned_offsets


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("\ufeffAlice", "Alice"),
        ("a\r\nb\rc\nd", "a\nb\nc\nd"),
        ("page\x0cpage\x0bline\x85end", "page\npage\nline\nend"),
        ("A\x00l\x01i\x1bc\x7fe\x9f\tBob", "Alice\tBob"),
        ("\ud800x\udfff", "\ufffdx\ufffd"),
        ("e\u0301 \u00e9 \u200bzero \ufeffinside \u202erl \U0001f469\u200d\U0001f467 \ufb01 \u2028", None),
    ],
)
def test_only_what_is_no_text_goes(dirty: str, clean: str | None) -> None:
    assert clean_text(dirty) == (dirty if clean is None else clean)


def test_clean_text_is_idempotent_and_encodes() -> None:
    every = "".join(map(chr, range(0x3000))) + "\ud800"
    once = clean_text(every)
    assert clean_text(once) == once
    once.encode()


@given(st.text(alphabet="a\ufeff\r\n\x00\x85\ud800é", max_size=12), st.integers(0, 12))
def test_offsets_in_the_cleaned_text(text: str, offset: int) -> None:
    """A character that stays is where its offset leads, and what is before it is what is before it there."""
    at = cleaned_offsets(text)
    assert at(0) == 0
    assert at(len(text)) == len(clean_text(text))
    if offset < len(text) and text[offset] == "a":
        assert clean_text(text)[at(offset)] == "a"
        assert clean_text(text)[: at(offset)].count("a") == text[:offset].count("a")
