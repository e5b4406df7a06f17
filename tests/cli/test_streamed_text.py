"""Pieces of a text are wrapped at words, and at no other place."""

from __future__ import annotations

import io

import pytest

from hirag_dist.cli.query import StreamedText

TEXT = "Who lit the lamp? The keeper did [S1].\n\n- 灯台守 is his name\nVerylongwordthatfitsnoline at all."


def printed(pieces: list[str], width: int | None) -> str:
    out = io.StringIO()
    text = StreamedText(out, width)
    for piece in pieces:
        text.add(piece)
    text.end()
    return out.getvalue()


@pytest.mark.parametrize("size", [1, 1000])
def test_the_result_does_not_depend_on_the_pieces(size: int) -> None:
    pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    assert printed(pieces, 12) == (
        "Who lit the\nlamp? The\nkeeper did\n[S1].\n\n- 灯台守 is\nhis name\nVerylongwordthatfitsnoline\nat all."
    )
