"""Tokens of texts: counting with tiktoken, and chunking into windows of tokens with exact character spans.

The package ships the rank files, so that no network is needed. Two methods cut. `sentences` ends a chunk at the last
sentence end that fits and begins the next one at a sentence near the overlap; `tokens` cuts at fixed token positions,
so that recordings made with such chunks match.
"""

from __future__ import annotations

import binascii
import lzma
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
import tiktoken

from hirag_dist.errors import ConfigError
from hirag_dist.types import IntVector

_ENDS = (  # the best first: a paragraph, a sentence, a word
    re.compile(r"\n\s*\n"),
    re.compile(r"""[.!?…]["'”’»)\]]*\s+|[。！？]["'”’」』）]*\s*|\n"""),
    re.compile(r"\s+"),
)


def text_halves(text: str) -> tuple[str, str]:
    """Return the two halves of a text, parted at the end of a paragraph, sentence or word in its middle half.

    >>> text_halves("Ada wrote. Bob read it.")
    ('Ada wrote. ', 'Bob read it.')
    """
    middle = len(text) // 2
    for pattern in _ENDS:
        places = [match.end() for match in pattern.finditer(text, len(text) // 4, len(text) - len(text) // 4)]
        if places:
            middle = min(places, key=lambda place: abs(place - len(text) // 2))
            break
    return text[:middle], text[middle:]


_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*\s+|[。！？；][」』”’）]*\s*|\n\s*\n\s*")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A chunk's place: characters [start, end) of the text, and its length in tokens."""

    start: int
    end: int
    n_tokens: int


def chunk_spans(text: str, encoding: Encoding, size: int, overlap: int, at_sentences: bool) -> list[TextSpan]:
    """Return the chunks of a text, in order; together they cover every character that is not white space.

    Args:
        text: without lone surrogates.
        size: tokens of a chunk at most.
        overlap: tokens that a chunk shares with the one before, about.
        at_sentences: end chunks at sentence ends where there is one in their second half, else at white space,
            else at the token.

    Returns:
        Spans trimmed of white space; none for a text without anything else.

    Raises:
        ValueError: not 0 <= overlap < size.
    """
    if not 0 <= overlap < size:
        raise ValueError(f"overlap must be at least 0 and below size, got {overlap} and {size}")
    if not text.strip():
        return []
    ends = _token_ends(text, encoding)
    if at_sentences:
        windows = _sentence_windows(text, ends, size, overlap)
    else:
        windows = ((first, min(first + size, len(ends))) for first in range(0, len(ends), size - overlap))
    spans: list[TextSpan] = []
    for first, last in windows:
        start = int(ends[first - 1]) if first else 0
        end = int(ends[last - 1])
        piece = text[start:end]
        lead = len(piece) - len(piece.lstrip())
        body = len(piece.strip())
        if body:
            spans.append(TextSpan(start + lead, start + lead + body, last - first))
    return spans


def _token_ends(text: str, encoding: Encoding) -> IntVector:
    """Return (n_tokens,) character positions where each token ends; a token inside a character ends before it."""
    tokens = encoding.encode_to_numpy(text, disallowed_special=())  # the encodings have no special tokens
    counts = np.bincount(tokens)
    lengths = np.zeros(len(counts), np.int32)  # bytes, by token
    for token in np.flatnonzero(counts).tolist():
        lengths[token] = len(encoding.decode_single_token_bytes(token))
    byte_ends = np.cumsum(lengths[tokens], dtype=np.int64)
    if text.isascii():
        return byte_ends
    data = np.frombuffer(text.encode("utf-8"), np.uint8)
    whole = np.append((data & 0xC0) != 0x80, True)  # whether a character begins at each byte
    begins = np.zeros(len(data) + 1, np.int64)
    np.cumsum(whole[:-1], out=begins[1:])  # characters begun before each byte
    ends: IntVector = begins[byte_ends] - ~whole[byte_ends]
    return ends


def _sentence_windows(text: str, ends: IntVector, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    n_tokens = len(ends)
    sentences = _boundaries(_SENTENCE_END, text, ends)
    spaces: IntVector | None = None
    first = 0
    while True:
        last = min(first + size, n_tokens)
        if last < n_tokens:
            cut = _last_within(sentences, first + size // 2, last)
            if cut is None:
                if spaces is None:
                    spaces = _boundaries(_SPACE, text, ends)
                cut = _last_within(spaces, first + size // 2, last)
            last = cut or last
        yield first, last
        if last >= n_tokens:
            return
        begin = last - overlap
        at = int(np.searchsorted(sentences, begin, side="left"))
        if at < len(sentences) and sentences[at] < last:
            begin = int(sentences[at])
        first = max(begin, first + 1)


def _boundaries(pattern: re.Pattern[str], text: str, ends: IntVector) -> IntVector:
    """Return token positions (tokens before them) at which a match of the pattern is complete."""
    places = np.fromiter((match.end() for match in pattern.finditer(text)), np.int64)
    # A token often takes the space before its word, so a boundary is the last token that ends by there.
    found: IntVector = np.unique(np.searchsorted(ends, places, side="right"))
    return found


def _last_within(places: IntVector, low: int, high: int) -> int | None:
    at = int(np.searchsorted(places, high, side="right")) - 1
    return int(places[at]) if at >= 0 and places[at] > low else None


Encoding = tiktoken.Encoding

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LETTERS_AND_MARKS = r"[^\r\n\p{L}\p{N}]?"
# The pre-tokenisation rules are part of each encoding's definition, like its ranks.
_PATTERNS = {
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
        r"|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "o200k_base": "|".join(
        [
            _LETTERS_AND_MARKS + _UPPER + "*" + _LOWER + "+" + _CONTRACTION,
            _LETTERS_AND_MARKS + _UPPER + "+" + _LOWER + "*" + _CONTRACTION,
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    ),
}


@lru_cache(maxsize=4)
def encoding(name: str) -> tiktoken.Encoding:
    """Return a shipped encoding: o200k_base or cl100k_base.

    Raises:
        ConfigError: another name.
    """
    if name not in _PATTERNS:
        raise ConfigError(f"no tokenizer is called {name!r}; there are: {', '.join(_PATTERNS)}")
    packed = resources.files("hirag_dist.core.text").joinpath("data", f"{name}.tiktoken.xz").read_bytes()
    fields = lzma.decompress(packed).split()  # token, rank, token, rank, …
    ranks = dict(zip(map(binascii.a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))
    return tiktoken.Encoding(name, pat_str=_PATTERNS[name], mergeable_ranks=ranks, special_tokens={})


@lru_cache(maxsize=4)
def counter(name: str) -> Callable[[str], int]:
    """Return a function that counts a text's tokens; special tokens in the text count as ordinary text."""
    encode = encoding(name).encode_ordinary
    return lambda text: len(encode(text))
