"""Terms in letters without spaces (Thai, Lao, Khmer, Myanmar, Tibetan): long strings that recur in changing company."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hirag_dist.core.text.normalize import UNSPACED
from hirag_dist.llm.rule_based.names import NameOccurrence

_RUN = re.compile(f"[{UNSPACED}]+")
_CLUSTER = re.compile(  # a letter with the vowels before it and the signs above, below and behind it
    "[\u0e40-\u0e44\u0ec0-\u0ec4]?[^\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd]"
    "[\u0e30-\u0e3a\u0e45-\u0e4e\u0eb0-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u1056-\u1060\u17b6-\u17d3\u0f71-\u0fbc]*"
)
_SIZES = range(4, 13)  # clusters: shorter strings are mostly function words
_MAX_TERMS = 120
_STEADY = 0.7  # share of one neighbour from which a string is a part of a longer one


def find_terms(sentences: Sequence[str]) -> list[NameOccurrence]:
    """Return the recurring terms of a text, the longest of those that always go together."""
    runs = [
        (number, match.start(), _CLUSTER.findall(match[0]))
        for number, line in enumerate(sentences)
        for match in _RUN.finditer(line)
    ]
    counts: Counter[str] = Counter()
    for _, _, run in runs:
        for size in _SIZES:
            counts.update("".join(run[at : at + size]) for at in range(len(run) - size + 1))
    likely = {gram for gram, count in counts.items() if count > 1}
    free = _free(likely, counts, [run for _, _, run in runs])
    kept = _longest({gram: counts[gram] for gram in likely if gram in free})
    best = sorted(kept, key=lambda gram: (-kept[gram] * len(gram), gram))[:_MAX_TERMS]
    found = []
    for term in best:
        places = [(number, line.find(term) // 4) for number, line in enumerate(sentences) if term in line]
        if places:
            found.append(NameOccurrence(term, "concept", places, len(places) * min(len(term), 12) / 8, proper=False))
    return found


def _free(likely: set[str], counts: Counter[str], runs: Sequence[Sequence[str]]) -> set[str]:
    """Return the strings whose neighbours vary on both sides."""
    left: dict[str, Counter[str]] = {gram: Counter() for gram in likely}
    right: dict[str, Counter[str]] = {gram: Counter() for gram in likely}
    for run in runs:
        padded = ["", *run, ""]
        for size in _SIZES:
            for at in range(1, len(padded) - size):
                gram = "".join(padded[at : at + size])
                if gram in likely:
                    left[gram][padded[at - 1]] += 1
                    right[gram][padded[at + size]] += 1
    return {gram for gram in likely if _varies(left[gram], counts[gram]) and _varies(right[gram], counts[gram])}


def _varies(neighbours: Counter[str], count: int) -> bool:
    edge = neighbours.pop("", 0)
    return edge > 0 or max(neighbours.values(), default=0) <= _STEADY * count


def _longest(counts: dict[str, int]) -> dict[str, int]:
    """Return the strings that are not nearly always a part of a longer one."""
    kept = dict(counts)
    for gram in sorted(counts, key=lambda gram: (-len(gram), gram)):
        if gram not in kept:
            continue
        for part in [other for other in kept if other != gram and other in gram]:
            if kept[part] <= kept[gram] * 1.3:
                del kept[part]
    return kept
