"""Text that is printed as it arrives, wrapped at words in a terminal."""

from __future__ import annotations

import re
from typing import TextIO

from rich.cells import cell_len

_TOKEN = re.compile(r"\S+|\n|[^\S\n]+")


class StreamedText:
    """Prints pieces of a text. A word that is not complete yet is kept until it is.

    Args:
        stream: where the text goes.
        width: columns of the terminal; None prints the pieces as they are.
    """

    def __init__(self, stream: TextIO, width: int | None) -> None:
        self._stream = stream
        self._width = width
        self._word = ""
        self._gap = ""
        self._column = 0

    def add(self, piece: str) -> None:
        """Print the next piece, apart from its last word."""
        if self._width is None:
            self._stream.write(piece)
        else:
            for token in _TOKEN.findall(piece):
                if not token.isspace():
                    self._word += token
                    continue
                self._end_word()
                if token == "\n":
                    self._stream.write("\n")
                    self._column, self._gap = 0, ""
                else:
                    self._gap = " "
        self._stream.flush()

    def end(self) -> None:
        """Print what is kept."""
        self._end_word()
        self._stream.flush()

    def _end_word(self) -> None:
        if not self._word:
            return
        gap = self._gap if self._column else ""
        size = cell_len(self._word)
        if self._width is not None and self._column and self._column + len(gap) + size > self._width:
            gap, self._column = "\n", -1
        self._stream.write(gap + self._word)
        self._column += len(gap) + size
        self._word = self._gap = ""
