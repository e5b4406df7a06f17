"""Sentences of a cited chunk that support an answer: those that share most words with what cites them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from hirag_dist.core.retrieval.places import character_place
from hirag_dist.core.text.line_breaks import unwrapped
from hirag_dist.types import Citation, Place, Retrieval, SourceItem

Quoted = Callable[[SourceItem, int, int], tuple[Place, ...]]  # (chunk, start, end in its document) → places

MIN_COVERAGE = 0.4  # share of a statement's words, by rarity, that a sentence must have
MIN_WORDS = 2  # that it must share
_MAX_STATEMENT = 600  # characters before a citation that are looked at
_MAX_SUPPORTS = 5  # sentences for each citation
_ABBREVIATED: Final = re.compile(
    r"(?:\b(?:[A-Za-z]|Mr|Mrs|Ms|Messrs|Dr|Capt|Gen|Col|Lt|Rev|Hon|Prof|St|Mt|No|Nr|Fig|Eq|Sec|vs|al|cf|approx|ca|Inc|Ltd|Jr|Sr|bzw|Bd|Hr|Fr|S)|\A\s*\d+)\Z"
)
_STEM = 6  # characters of a word that are compared, so that its forms are one
_LONGEST_ABBREVIATION = 12  # characters before a point that are looked at
_END: Final = re.compile(r"[.!?…][\"'”’»)\]]*\s+(?![a-zß-öø-ÿ])|[。！？；][」』”’）]*\s*|\n+")
_GROUP: Final = re.compile(r"(?:\s*\[[ERKCS]\d+\])+[\s.,;:]*\Z")
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]+|[^\W_]+(?:[.,'’\-][^\W_]+)*")
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]")


def placed_citations(
    text: str, citations: Iterable[Citation], retrieval: Retrieval, quoted: Quoted | None = None
) -> tuple[Citation, ...]:
    """Return citations with the stretches of documents that support an answer, of those that cite chunks.

    Args:
        text: of the answer, with checked citations.
        citations: of the text.
        retrieval: that the answer is based on.
        quoted: returns the places of a stretch of a chunk; None: places with characters only.
    """
    chunks = {item.chunk_id: item for item in retrieval.sources}
    find = quoted or _characters
    placed = []
    for citation in citations:
        source = chunks.get(citation.id) if citation.kind == "chunk" else None
        if source is not None:
            spans = supporting_spans(text, citation.ref, source.text) or [(0, source.end - source.start)]
            places = [place for low, high in spans for place in find(source, source.start + low, source.start + high)]
            citation = replace(citation, document_id=source.document_id, uri=source.uri, places=tuple(places))
        placed.append(citation)
    return tuple(placed)


def supporting_spans(text: str, ref: str, source: str) -> list[tuple[int, int]]:
    """Return the sentences of a source that state what an answer cites it for, in their order; none if unclear.

    A sentence supports a statement if it has at least `MIN_COVERAGE` of the statement's words, weighted by how rare
    they are in the source, and more of them than any other sentence.

    Args:
        text: of the answer.
        ref: as it stands in the text, without brackets.
        source: text of the cited chunk.

    >>> supporting_spans("The lamp was lit at dusk [S1].", "S1", "He slept. The lamp was always lit at dusk.")
    [(10, 42)]
    """
    spans = sentence_spans(source)
    words = [set(_words(source[start:end])) for start, end in spans]
    counts = Counter(word for own in words for word in own)
    found: dict[tuple[int, int], None] = {}
    for statement in statements(text, ref):
        wanted = set(_words(statement))
        rarity = {word: math.log(1 + len(spans) / (max(counts[word], 1))) for word in wanted}
        total = sum(rarity.values())
        scores = [
            (sum(rarity[word] for word in own & wanted), -len(own), -at)
            for at, own in enumerate(words)
            if len(own & wanted) >= min(MIN_WORDS, len(wanted))
        ]
        if scores and total and max(scores)[0] >= MIN_COVERAGE * total:
            found[spans[-max(scores)[2]]] = None
    return sorted(found)[:_MAX_SUPPORTS]


def statements(text: str, ref: str) -> Iterator[str]:
    """Yield the sentence before each citation of a reference, or the part of it since the citation before.

    >>> list(statements("It rained [S1]. He left, and she stayed [S2][S1]. So it was.", "S1"))
    ['It rained', 'He left, and she stayed']
    """
    mark = f"[{ref}]"
    at = text.find(mark)
    while at >= 0:
        before = _GROUP.sub("", text[max(at - _MAX_STATEMENT, 0) : at] + mark)
        before = before.rpartition("]")[2] if re.search(r"\[[ERKCS]\d+\]", before) else before
        spans = sentence_spans(before)
        if spans:
            start, end = spans[-1]
            yield before[start:end].strip(" .,;:")
        at = text.find(mark, at + len(mark))


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of the sentences and lines of a text, without the white space around them.

    A sentence may go on over lines of a text that is wrapped at a fixed width.
    """
    text = unwrapped(text)
    spans = []
    start = 0
    for match in _END.finditer(text):
        if match[0][0] == "." and _ABBREVIATED.search(text[start : match.start()][-_LONGEST_ABBREVIATION:]):
            continue
        spans.append((start, match.end()))
        start = match.end()
    spans.append((start, len(text)))
    stripped = ((low + len(text[low:high]) - len(text[low:high].lstrip()), high) for low, high in spans)
    return [(low, low + len(text[low:high].rstrip())) for low, high in stripped if text[low:high].strip()]


def _words(text: str) -> Iterator[str]:
    """Yield words in small letters; pairs of characters where a script has no spaces."""
    for match in _WORD.finditer(text.casefold()):
        word = match[0]
        if _UNSPACED.match(word) and len(word) > 1:
            yield from (word[at : at + 2] for at in range(len(word) - 1))
        else:
            yield word[:_STEM]


def _characters(source: SourceItem, start: int, end: int) -> tuple[Place, ...]:
    text = source.text[start - source.start : end - source.start]
    return (character_place(source.uri, start, end, text),)
