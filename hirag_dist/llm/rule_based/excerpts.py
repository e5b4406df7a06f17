"""Sentences chosen and cut: what a text says about one entity, or about two together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hirag_dist.core.text.normalize import shorten
from hirag_dist.llm.rule_based.requests import safe

_LONG = 240
_DEFINES = re.compile(
    r"\b(?:is|was|are|were|refers?|means|denotes?|became|born|called|known|defined|consists?)\b|是|为|乃|—"
)


def about(name: str, numbers: Sequence[int], lines: Sequence[str]) -> str:
    """Return the sentence, or two short ones, that tell most about a name, from those that hold it."""
    numbers = sorted(set(numbers))[:8]
    short = name.rpartition(" ")[2].lower()
    ranked = sorted(numbers, key=lambda number: (-_worth(lines[number], short), number))
    if not ranked:
        return ""
    chosen = [ranked[0]]
    if (
        len(ranked) > 1
        and len(lines[ranked[0]]) + len(lines[ranked[1]]) < _LONG
        and lines[ranked[0]] != lines[ranked[1]]
    ):
        chosen = sorted(ranked[:2])
    text = " ".join(lines[number].lstrip("# ") for number in chosen)
    return safe(text if len(text) <= _LONG else _window(text, [short]), _LONG)


def around(one: str, other: str, sentence: str, next_sentence: str) -> str:
    """Return the part of a sentence, or of two in a row, that holds two names."""
    sentence, next_sentence = sentence.lstrip("# "), next_sentence.lstrip("# ")
    ends = [one.rpartition(" ")[2].lower(), other.rpartition(" ")[2].lower()]
    if sentence != next_sentence:
        half = _LONG // 2
        return safe(f"{_window(sentence, ends, half)} {_window(next_sentence, ends, half)}", _LONG)
    return safe(_window(sentence, ends), _LONG)


def _worth(line: str, short: str) -> float:
    length = len(line)
    at = line.lower().find(short)
    if line.startswith("#"):
        return 0.0  # a heading: used only where nothing else is there
    worth = 1.0 if 50 <= length <= _LONG else 0.6 if length < 400 else 0.3
    if length < 25:
        worth -= 0.6
    if at >= 0:
        worth += 0.8 / (1 + at / 25)
        if _DEFINES.search(line, at, at + len(short) + 40):
            worth += 0.7
    if not line.endswith((".", "!", "?", "。", "”", '"')):
        worth -= 0.3
    return worth


def _window(text: str, ends: Sequence[str], size: int = _LONG) -> str:
    """Return at most `size` characters of the text around the words, cut at words, with ellipses."""
    if len(text) <= size:
        return text
    lower = text.lower()
    spots = sorted(at for at in (lower.find(end) for end in ends) if at >= 0)
    if not spots or spots[-1] + 40 < size:
        return shorten(text, size)
    start = max(spots[0] - 40, 0) if spots[-1] - spots[0] + 80 < size else max(spots[-1] - size + 60, 0)
    start = min(start, max(len(text) - size + 2, 0))
    if start:
        space = text.find(" ", start)
        start = space + 1 if 0 <= space < start + 30 else start
        return "…" + shorten(text[start:], size - 1)
    return shorten(text, size)
