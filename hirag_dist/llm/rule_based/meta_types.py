"""Meta types for a corpus: the built-in kinds that its excerpts name most, and what is always of use."""

from __future__ import annotations

from collections import Counter

from hirag_dist.llm.rule_based.entity_types import DEFAULT_TYPES
from hirag_dist.llm.rule_based.finder import find_entities
from hirag_dist.llm.rule_based.requests import ParsedRequest
from hirag_dist.llm.rule_based.sentences import split_sentences

_MOST = 7
_ALWAYS = ("concept", "field", "process")  # what groups of things are about, however few excerpts say so


def entity_types(ask: ParsedRequest) -> str:
    """Return the reply to entity-types: the built-in kinds, the most frequent in the excerpts first."""
    counts = _counts(ask)
    return "\n".join(sorted(DEFAULT_TYPES, key=lambda kind: (-counts[kind], DEFAULT_TYPES.index(kind))))


def meta_types(ask: ParsedRequest) -> str:
    """Return the reply to meta-types: one a line, the most frequent first."""
    counts = _counts(ask)
    ranked = sorted(counts, key=lambda kind: (-counts[kind], kind))[:_MOST]
    return "\n".join(dict.fromkeys([*ranked, *_ALWAYS]))


def _counts(ask: ParsedRequest) -> Counter[str]:
    """Return how often the excerpts name each kind."""
    counts: Counter[str] = Counter()
    for piece in ask.body.split("<excerpt>")[1:]:
        lines = split_sentences(piece.partition("</excerpt>")[0])
        counts.update(found.type for found in find_entities(lines))
    return counts
