"""Kinds of writing: with capitals, without, and without spaces; and the sentences of each."""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum

from hirag_dist.core.text.normalize import UNSPACED
from hirag_dist.llm.rule_based.language import HAN_RUN, KANA, WORD
from hirag_dist.llm.rule_based.sentences import clean, sentences
from hirag_dist.llm.rule_based.word_lists import FUNCTION

_UNSPACED = re.compile(f"[{UNSPACED}]")
_SAMPLE = 20_000  # characters that decide
_MIN_SHARE = 0.2  # of the letters, for a second kind of writing
_MIN_ENGLISH = 0.15  # share of the words that are English function words
_CASELESS_END = re.compile(r"(?<=[.!?؟।॥۔።։།။])\s*(?=\S)(?<![A-Za-z\d]\.)")
_SPACES = re.compile(r"\s+")
_PIECE = 60  # characters of a sentence where nothing but spaces parts them


class Script(StrEnum):
    """Kind of writing."""

    CASED = "cased"  # words between spaces, names with capitals: Latin, Greek, Cyrillic, Armenian
    CASELESS = "caseless"  # words between spaces, no capitals: Arabic, Hebrew, Devanagari, Hangul
    IDEOGRAPHIC = "ideographic"  # Chinese and Japanese
    UNSPACED = "unspaced"  # letters without spaces: Thai, Lao, Khmer, Myanmar, Tibetan


def scripts_of(text: str) -> tuple[Script, ...]:
    """Return the kinds of writing that a text has a good share of, the commonest first; none for no letters.

    >>> scripts_of("Sejong은 왕이다"), scripts_of("1234")
    ((<Script.CASED: 'cased'>, <Script.CASELESS: 'caseless'>), ())
    """
    counts = Counter(_script(ch) for ch in text[:_SAMPLE] if ch.isalpha())
    total = counts.total()
    found = [script for script in Script if counts[script] >= _MIN_SHARE * total > 0]
    return tuple(sorted(found, key=lambda script: -counts[script]))


def _script(ch: str) -> Script:
    if ch.lower() != ch.upper():
        return Script.CASED
    if HAN_RUN.match(ch) or KANA.match(ch):
        return Script.IDEOGRAPHIC
    return Script.UNSPACED if _UNSPACED.match(ch) else Script.CASELESS


def is_english(text: str) -> bool:
    """Return whether the text's function words are English, so that word lists of English apply to it."""
    words = WORD.findall(text[:_SAMPLE].lower())
    return sum(word in FUNCTION for word in words) >= _MIN_ENGLISH * len(words) > 0


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text in any writing, each on one line.

    Writing without capitals ends a sentence at its punctuation alone. Where there is none either, as in Thai, spaces
    part clauses, which are joined up to some length.
    """
    lines = sentences(clean(text))
    scripts = scripts_of(text)
    if Script.CASELESS in scripts:
        lines = [piece for line in lines for piece in _CASELESS_END.split(line) if piece]
    if Script.UNSPACED in scripts:
        lines = [piece for line in lines for piece in _clauses(line)]
    return lines


def _clauses(line: str) -> list[str]:
    found: list[str] = []
    for piece in _SPACES.split(line):
        if found and len(found[-1]) < _PIECE:
            found[-1] = f"{found[-1]} {piece}"
        elif piece:
            found.append(piece)
    return found
