"""WordPiece, the tokenizer of BERT: texts to numbers of a vocabulary of words and ends of words."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

UNKNOWN, CLASS, SEPARATOR = "[UNK]", "[CLS]", "[SEP]"
_MAX_WORD = 100  # characters; a longer word is unknown
_MAX_CACHED = 200_000
_HAN = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """The uncased tokenizer of BERT: lower case without accents; a word is split into its longest known pieces.

    Source: Devlin et al. 2019 (arXiv 1810.04805); the rules are those of `BertTokenizer`. Names of special tokens in a
    text are words as any others.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Take the pieces in the order of their numbers; those inside a word begin with ##.

        Raises:
            ValueError: the vocabulary has no token for what is unknown.
        """
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        if UNKNOWN not in self._ids:
            raise ValueError(f"the vocabulary has no {UNKNOWN}")
        self._cached: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def id_of(self, piece: str) -> int:
        """Return the number of a piece.

        Raises:
            KeyError: it is not of the vocabulary.
        """
        return self._ids[piece]

    def encode(self, text: str, limit: int | None = None) -> list[int]:
        """Return the pieces of a text, without special tokens, at most `limit` of them."""
        found: list[int] = []
        for word in _words(text):
            pieces = self._cached.get(word)
            if pieces is None:
                if len(self._cached) >= _MAX_CACHED:
                    self._cached.clear()
                pieces = self._cached[word] = self._split(word)
            found.extend(pieces)
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found

    def _split(self, word: str) -> tuple[int, ...]:
        if len(word) > _MAX_WORD:
            return (self._ids[UNKNOWN],)
        pieces, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                piece = self._ids.get(mark + word[start:end])
                if piece is not None:
                    break
            else:
                return (self._ids[UNKNOWN],)
            pieces.append(piece)
            start = end
        return tuple(pieces)


class _Marked(dict[int, str]):
    """Replacement of each character of a decomposed text, found when it is first looked up."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if char.isspace() and (category != "Cc" or char in "\t\n\r"):
            found = " "
        elif category == "Mn" or category.startswith("C") or char == "\ufffd":
            found = ""
        elif _is_mark(char, category) or any(first <= code <= last for first, last in _HAN):
            found = f" {char} "
        else:
            found = char.lower()
        self[code] = found
        return found


_MARKED = _Marked()


def _is_mark(char: str, category: str) -> bool:
    """Return whether it is punctuation: of Unicode, and in ASCII whatever is neither letter nor digit."""
    return category.startswith("P") or (char.isascii() and not char.isalnum())


def _words(text: str) -> list[str]:
    """Return the words of a text, and its marks of punctuation and Han characters, each of which is one."""
    return unicodedata.normalize("NFD", text).translate(_MARKED).split()
