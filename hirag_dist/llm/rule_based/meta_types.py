"""Meta types for a corpus: the built-in kinds that its excerpts name most, and what is always of use."""

from __future__ import annotations

from collections import Counter

from hirag_dist.llm.rule_based.extraction import candidates
from hirag_dist.llm.rule_based.requests import ParsedRequest
from hirag_dist.llm.rule_based.sentences import clean, sentences

_MOST = 7
_ALWAYS = ("concept", "field", "process")  # what groups of things are about, however few excerpts say so


def meta_types(ask: ParsedRequest) -> str:
    """Return the reply to meta-types: one a line, the most frequent first."""
    counts: Counter[str] = Counter()
    for piece in ask.body.split("<excerpt>")[1:]:
        text = clean(piece.partition("</excerpt>")[0])
        counts.update(found.kind for found in candidates(sentences(text)))
    ranked = sorted(counts, key=lambda kind: (-counts[kind], kind))[:_MOST]
    return "\n".join(dict.fromkeys([*ranked, *_ALWAYS]))
