"""Token counting with tiktoken, from rank files that the package ships: without network access."""

from __future__ import annotations

import binascii
import lzma
from collections.abc import Callable
from functools import lru_cache
from importlib import resources

import tiktoken

from hirag_dist.errors import ConfigError

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

    def count(text: str) -> int:
        return len(encode(text))

    return count
