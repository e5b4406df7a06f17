"""Lexical search: the chunks with the words of a question, by BM25 over an inverted index.

A chunk's score is the sum over the question's distinct terms of

    idf(t) · f · (K1 + 1) / (f + K1 · (1 − B + B · length / average length)),  idf(t) = ln(1 + (N − n + ½) / (n + ½))

with f occurrences of the term in the chunk, N chunks, and n chunks with the term (Robertson and Zaragoza, The
Probabilistic Relevance Framework: BM25 and Beyond, 2009). N, n and the average length are those of the chunks that the
caller may see, so hidden chunks change no score. That is why scores are not computed when the index is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled_apart, compiled_inside, read_only
from hirag_dist.core.groupby import blocks_of
from hirag_dist.core.text.terms import runs, terms_of_run
from hirag_dist.types import IntVector

K1: Final = 1.2
B: Final = 0.75
MAX_TERMS: Final = 256  # distinct terms of a question
MAX_POSTINGS: Final = 400_000  # visible ones that are read for a question, of its rarest terms first: a millisecond
_MAX_COUNT = 255  # of a term in a chunk, as stored: more change a score by less than a hundredth
_MAX_RUNS = 1 << 20  # that the builder remembers
_BLOCK_POSTINGS = 1 << 21  # postings that are sorted at a time, about
_NO_MASK: Final = read_only(np.zeros(0, np.bool_))
_EVERY_ROW: Final = read_only(np.zeros(0, np.int32))
_EVERY_POSTING: Final = read_only(np.zeros(0, np.int64))


class LexicalIndex(NamedTuple):
    """Inverted index of chunks, which have numbers of its own.

    Attributes:
        keys: (n_terms,) uint64 hash of each term, ascending.
        indptr: (n_terms + 1,) int64 postings of each term.
        chunks: (n_postings,) int32 numbers of chunks, ascending for each term.
        counts: (n_postings,) uint8 occurrences of the term in the chunk, 255 at most.
        lengths: (n_chunks,) int32 terms of each chunk.
    """

    keys: NDArray[np.uint64]
    indptr: IntVector
    chunks: NDArray[np.int32]
    counts: NDArray[np.uint8]
    lengths: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class LexicalPart:
    """The inverted index of some chunks of a snapshot, and maybe of others.

    Attributes:
        rows: (n_own_chunks,) int32 row in the snapshot of each of its chunks, −1 for one that is not part of it; empty:
            the rows are its own numbers.
        frequencies: (n_terms,) number of chunks of the snapshot with each term; empty: all of its postings count.
    """

    index: LexicalIndex
    rows: NDArray[np.int32] = field(default_factory=lambda: _EVERY_ROW)
    frequencies: IntVector = field(default_factory=lambda: _EVERY_POSTING)

    def own_rows(self) -> NDArray[np.int32]:
        """Return (n_own_chunks,) the row in the snapshot of each chunk."""
        return self.rows if len(self.rows) else np.arange(len(self.index.lengths), dtype=np.int32)

    def frequencies_of(self, first: IntVector, last: IntVector) -> IntVector:
        """Return the number of chunks of the snapshot with the terms [first, last), one or none each time: (n,)."""
        if not len(self.frequencies):
            found: IntVector = self.index.indptr[last] - self.index.indptr[first]
            return found
        found, known = np.zeros(len(first), np.int64), last > first
        found[known] = self.frequencies[first[known]]
        return found


class VisibleChunks(NamedTuple):
    """The chunks that a search is over.

    Attributes:
        mask: (n_chunks,) whether the caller may see a chunk; None: all are visible.
        n_chunks: number of chunks of the snapshot.
        number: of visible chunks.
        terms: of all of them together.
    """

    mask: NDArray[np.bool_] | None
    n_chunks: int
    number: int
    terms: int


class _Postings(NamedTuple):
    """Postings, in any order.

    Attributes:
        terms: (n,) int32 numbers of terms.
        chunks: (n,) int32 rows.
        counts: (n,) uint8.
    """

    terms: NDArray[np.int32]
    chunks: NDArray[np.int32]
    counts: NDArray[np.uint8]


class LexicalIndexBuilder:
    """Builder of an inverted index.

    Memory: about 15 bytes a posting.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._of_run: dict[str, tuple[int, ...]] = {}
        self._rows: list[IntVector] = [np.zeros(0, np.int64)]
        self._lengths: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
        self._postings: list[_Postings] = []

    def add(self, rows: IntVector, texts: Sequence[str]) -> None:
        """Add the texts of some chunks, each chunk once."""
        found = [[number for run in runs(text) for number in self._terms(run)] for text in texts]
        lengths = np.fromiter(map(len, found), np.int32, len(found))
        numbers = np.fromiter((number for one in found for number in one), np.int64, int(lengths.sum()))
        pairs, counts = np.unique(np.repeat(rows, lengths) << 32 | numbers, return_counts=True)
        chunks, terms = (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32)
        self._postings.append(_Postings(terms, chunks, np.minimum(counts, _MAX_COUNT).astype(np.uint8)))
        self._rows.append(rows)
        self._lengths.append(lengths)

    def built(
        self, n_chunks: int, base: Sequence[LexicalPart] = (), base_rows: IntVector | None = None
    ) -> LexicalIndex:
        """Return the index.

        Args:
            base: index of another snapshot, for the chunks that were not added.
            base_rows: (n_chunks,) row of each chunk there, −1 for one that was added.
        """
        keys = np.fromiter(map(term_key, self._numbers), np.uint64, len(self._numbers))
        lengths = np.zeros(n_chunks, np.int32)
        lengths[np.concatenate(self._rows)] = np.concatenate(self._lengths)
        parts = [keys, *(part.index.keys for part in base)]
        sorted_keys, ranks = np.unique(np.concatenate(parts), return_inverse=True)
        new_ranks, *base_ranks = np.split(ranks, np.cumsum([len(part) for part in parts])[:-1])
        sources: list[_NewPostings | _KeptPostings] = [
            _NewPostings(postings._replace(terms=new_ranks[postings.terms].astype(np.int32)))
            for postings in self._postings
        ]
        for part, own_ranks in zip(base, base_ranks, strict=True):
            rows = _new_rows(part, base_rows)
            kept = rows >= 0
            lengths[rows[kept]] = part.index.lengths[kept]
            sources.append(_KeptPostings(part.index, rows, own_ranks))
        most = sum((source.sizes(len(sorted_keys)) for source in sources), np.zeros(len(sorted_keys), np.int64))
        chunks, counts = np.empty(most.sum(), np.int32), np.empty(most.sum(), np.uint8)
        sizes, n_postings = np.zeros(len(sorted_keys), np.int64), 0
        for low, high in blocks_of(most, _BLOCK_POSTINGS):
            found = [source.between(low, high) for source in sources]
            terms, own_chunks, own_counts = (np.concatenate(part) for part in zip(*found, strict=True))
            order = np.argsort(terms.astype(np.int64) << 32 | own_chunks)
            place = slice(n_postings, n_postings + len(order))
            chunks[place], counts[place] = own_chunks[order], own_counts[order]
            sizes[low:high] = np.bincount(terms - low, minlength=high - low)
            n_postings += len(order)
        used = sizes > 0  # terms of the base whose chunks are gone are left out
        indptr = np.concatenate([[0], np.cumsum(sizes[used])]).astype(np.int64)
        return LexicalIndex(sorted_keys[used], indptr, chunks[:n_postings], counts[:n_postings], lengths)

    def _terms(self, run: str) -> tuple[int, ...]:
        numbers = self._of_run.get(run)
        if numbers is None:
            if len(self._of_run) >= _MAX_RUNS:
                self._of_run.clear()
            numbers = tuple(self._numbers.setdefault(term, len(self._numbers)) for term in terms_of_run(run))
            self._of_run[run] = numbers
        return numbers


class _NewPostings:
    """The postings of chunks that were added, by ranks of terms."""

    def __init__(self, postings: _Postings) -> None:
        order = np.argsort(postings.terms, kind="stable")
        terms, chunks, counts = postings
        self._postings = _Postings(terms[order], chunks[order], counts[order])

    def sizes(self, n_terms: int) -> IntVector:
        """Return (n_terms,) the postings of each term, at most."""
        return np.bincount(self._postings.terms, minlength=n_terms)

    def between(self, low: int, high: int) -> _Postings:
        """Return the postings of the terms [low, high)."""
        first, end = np.searchsorted(self._postings.terms, [low, high])
        terms, chunks, counts = self._postings
        return _Postings(terms[first:end], chunks[first:end], counts[first:end])


class _KeptPostings:
    """The postings of a base whose chunks are still there, by ranks of terms."""

    def __init__(self, base: LexicalIndex, rows: NDArray[np.int32], ranks: IntVector) -> None:
        self._base, self._rows, self._ranks = base, rows, ranks

    def sizes(self, n_terms: int) -> IntVector:
        """Return (n_terms,) the postings of each term, at most."""
        sizes = np.zeros(n_terms, np.int64)
        sizes[self._ranks] = np.diff(self._base.indptr)
        return sizes

    def between(self, low: int, high: int) -> _Postings:
        """Return the postings of the terms [low, high)."""
        first, end = np.searchsorted(self._ranks, [low, high])  # the ranks of a base's terms ascend
        own = slice(self._base.indptr[first], self._base.indptr[end])
        terms = np.repeat(self._ranks[first:end], np.diff(self._base.indptr[first : end + 1])).astype(np.int32)
        chunks = self._rows[self._base.chunks[own]]
        still = chunks >= 0
        return _Postings(terms[still], chunks[still], self._base.counts[own][still])


def _new_rows(part: LexicalPart, base_rows: IntVector | None) -> NDArray[np.int32]:
    """Return (n_own_chunks,) the new row of each chunk of a base's part, −1 for one that is gone."""
    own, of = part.own_rows(), np.zeros(0, np.int64) if base_rows is None else base_rows
    found = np.full(max(int(own.max(initial=-1)), int(of.max(initial=-1))) + 2, -1, np.int32)  # the last is that of −1
    kept = np.flatnonzero(of >= 0)
    found[of[kept]] = kept
    return found[own]


def term_key(term: str) -> int:
    """Return the hash of a term."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@lru_cache(1 << 16)
def kept_term_key(term: str) -> int:
    """Return `term_key` of a word of a question, which is looked up in several indexes; many are kept."""
    return term_key(term)


def visible_chunks(parts: Sequence[LexicalPart], mask: NDArray[np.bool_] | None) -> VisibleChunks:
    """Return the scope of a search, by a mask of the visible chunks; None: all are."""
    n_chunks = number = n_terms = 0
    for part in parts:
        rows = part.own_rows()
        used = rows >= 0
        n_chunks += int(used.sum())
        seen = used if mask is None else used & mask[rows]
        number += int(seen.sum())
        n_terms += int(part.index.lengths[seen].sum(dtype=np.int64))
    return VisibleChunks(mask, n_chunks, number, n_terms)


def term_frequencies(index: LexicalIndex, used: NDArray[np.bool_]) -> IntVector:
    """Return (n_terms,) the number of some chunks of an index with each of its terms.

    Args:
        used: (n_own_chunks,) whether a chunk counts.
    """
    first = np.arange(len(index.keys))
    found: IntVector = _frequencies(index, _EVERY_ROW, first, first + 1, read_only(used))
    return found


def best_chunks(
    parts: Sequence[LexicalPart], terms: Sequence[str], limit: int, visible: VisibleChunks
) -> tuple[IntVector, NDArray[np.float64]]:
    """Return (rows, scores) of the best visible chunks with any of some terms, best first, ties by row.

    Where the terms have more than `MAX_POSTINGS` visible postings, the most frequent ones do not count.

    Args:
        terms: of a question; one that occurs several times counts once.
    """
    if limit < 1:
        return np.zeros(0, np.int64), np.zeros(0)
    wanted = np.fromiter(map(kept_term_key, list(dict.fromkeys(terms))[:MAX_TERMS]), np.uint64)
    wanted.sort()  # so that sums do not depend on the question's order
    mask = _NO_MASK if visible.mask is None else read_only(visible.mask)
    found = [
        (part, np.searchsorted(part.index.keys, wanted), np.searchsorted(part.index.keys, wanted, "right"))
        for part in parts
    ]
    frequencies = np.zeros(len(wanted), np.int64)
    for part, first, last in found:
        if visible.mask is None:
            frequencies += part.frequencies_of(first, last)
        else:
            frequencies += _frequencies(part.index, part.rows, first, last, mask)
    order = np.argsort(frequencies, kind="stable")
    before = np.cumsum(frequencies[order]) - frequencies[order]
    order = order[(frequencies[order] > 0) & (before < MAX_POSTINGS)]
    idf = np.log1p((visible.number - frequencies + 0.5) / (frequencies + 0.5))
    scores, average = np.zeros(visible.n_chunks), visible.terms / max(visible.number, 1)
    for part, first, last in found:
        _add_scores(part.index, part.rows, first[order], last[order], idf[order], mask, average, scores)
    rows, best_scores = _best(scores, limit)
    best = np.lexsort((rows, -best_scores))[:limit]
    return rows[best], best_scores[best]


@compiled_apart
def _frequencies(
    index: LexicalIndex, rows: NDArray[np.int32], first: IntVector, last: IntVector, mask: NDArray[np.bool_]
) -> Any:
    """Return the number of visible chunks with the terms [first, last); `rows` are those of `LexicalPart`."""
    found = np.zeros(len(first), np.int64)
    for at in range(len(first)):
        for posting in range(index.indptr[first[at]], index.indptr[last[at]]):
            chunk = index.chunks[posting]
            row = rows[chunk] if len(rows) else chunk
            found[at] += row >= 0 and mask[row]
    return found


@compiled_apart
def _add_scores(
    index: LexicalIndex,
    rows: NDArray[np.int32],
    first: IntVector,
    last: IntVector,
    idf: NDArray[np.float64],
    mask: NDArray[np.bool_],
    average: float,
    scores: NDArray[np.float64],
) -> None:
    """Add the share of the terms [first, last) to the scores of the visible chunks with them, as `_frequencies`."""
    for at in range(len(first)):
        for posting in range(index.indptr[first[at]], index.indptr[last[at]]):
            chunk = index.chunks[posting]
            row = rows[chunk] if len(rows) else chunk
            if row < 0 or (len(mask) and not mask[row]):
                continue
            count = np.float64(index.counts[posting])
            norm = K1 * (1.0 - B + B * index.lengths[chunk] / average)
            scores[row] += idf[at] * count * (K1 + 1.0) / (count + norm)


@compiled_apart
def _best(scores: NDArray[np.float64], limit: int) -> Any:
    """Return (rows, scores) of the chunks whose score is at least that of the last of the best `limit`, unsorted."""
    heap = np.zeros(limit)  # the smallest of the largest scores is first; every score is above zero
    for row in range(len(scores)):
        if scores[row] > heap[0]:
            replace_first(heap, scores[row])
    number = 0
    for row in range(len(scores)):
        number += scores[row] > 0.0 and scores[row] >= heap[0]
    rows, found = np.empty(number, np.int64), np.empty(number)
    number = 0
    for row in range(len(scores)):
        if scores[row] > 0.0 and scores[row] >= heap[0]:
            rows[number] = row
            found[number] = scores[row]
            number += 1
    return rows, found


@compiled_inside
def replace_first(heap: NDArray[np.float64], value: float) -> None:
    """Put a value in the place of a heap's smallest."""
    at = 0
    while True:
        child = 2 * at + 1
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if child >= len(heap) or value <= heap[child]:
            heap[at] = value
            return
        heap[at] = heap[child]
        at = child
