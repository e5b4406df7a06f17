"""Map-reduce answers by rules: what a part holds of the question's words, and the best of that put together.

A point is a sentence that matches, and its helpfulness says how much of the question it holds. The final answer is the
most helpful points that say something new.
"""

from __future__ import annotations

import json
import re

from hirag_dist.llm.rule_based.answers import NOT_KNOWN, best_sentences, coverage, wanted_words
from hirag_dist.llm.rule_based.language import content_words
from hirag_dist.llm.rule_based.requests import ParsedRequest

_POINT = re.compile(r"^- \(helpfulness (\d+(?:\.\d+)?)\) (.+?)((?:\[[CS]\d+\])+)\s*$", re.MULTILINE)
_MAX_POINTS = 8
_ALIKE = 0.6  # share of the shorter one's words


def map_answer(ask: ParsedRequest) -> str:
    """Return the reply to map-answer: the sentences that hold most of the question, none where they hold too little."""
    wanted = wanted_words(ask.between("question"))
    found = best_sentences(ask.between("context"), wanted)
    points = [
        {"text": f"{sentence.text} [{sentence.ref}]", "helpfulness": round(100 * coverage(sentence.hits, wanted))}
        for sentence in found
    ]
    return json.dumps({"points": points}, ensure_ascii=False)


def points_of(context: str) -> list[str]:
    """Return the texts of the points in a final answer's context, without their references, the most helpful first."""
    return [text.strip() for _, text, _ in _POINT.findall(context)]


def reduce_answer(ask: ParsedRequest) -> str:
    """Return the reply to reduce-answer: points in their order, without those that repeat one before."""
    said: list[frozenset[str]] = []
    lines: list[str] = []
    for _, text, refs in _POINT.findall(ask.between("context")):
        words = frozenset(content_words(text))
        if any(len(words & other) >= _ALIKE * max(min(len(words), len(other)), 1) for other in said):
            continue
        said.append(words)
        lines.append(f"{text.strip()} {refs}")
        if len(lines) == _MAX_POINTS:
            break
    return " ".join(lines) or NOT_KNOWN
