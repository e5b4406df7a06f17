"""The central chunks of a corpus, by PageRank on a graph of chunks and keywords (KET-RAG, arXiv 2502.09304, §4.1).

Chunks that share rare words are near each other: a step of the walk goes from a chunk to one of its keywords, and from
there to a chunk that has it, each in proportion to the keyword's weight. A chunk is central if the walk is there often.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.text.terms import terms
from hirag_dist.types import FloatVector, IntVector

KEYWORDS: Final = 48  # of a chunk at most
RESTART: Final = 0.15
_TOLERANCE: Final = 1e-9  # change of the scores in a step, in sum
_MAX_STEPS: Final = 100
_DIGITS: Final = 12  # of a score that is compared: the last bits differ between machines
_CANDIDATES: Final = 128  # terms of a chunk whose frequency in the corpus is counted
_INSTRUCTIONS = 220  # tokens of an extraction call without its text
_WRITTEN_PER_TERM = 1.75  # tokens of its reply, by terms of the text; both measured with the built-in model on Mix
_MIN_CHARS, _LONG = 3, 12  # of a term in ASCII; of one that counts no more for its length


def keywords_of(text: str) -> list[tuple[str, int]]:
    """Return the terms of a text that may be its keywords, and how often each occurs: the frequent and long ones first.

    At most `_CANDIDATES` are returned. Those of them that are rare in the corpus become keywords (`central_chunks`).
    """
    counts = Counter(term for term in terms(text) if len(term) >= _MIN_CHARS or not term.isascii())
    ranked = sorted(counts.items(), key=lambda item: (-item[1] * min(len(item[0]), _LONG), item[0]))
    return ranked[:_CANDIDATES]


def expected_tokens(text: str, n_tokens: int) -> int:
    """Return the tokens that the extraction of a text by a model takes, about: instructions, text and reply.

    The more words a text has for its tokens, the more records it has.
    """
    return _INSTRUCTIONS + n_tokens + round(_WRITTEN_PER_TERM * len(terms(text)))


def term_hash(term: str) -> int:
    """Return a number of 63 bits that stands for a term."""
    data = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(data, "little") >> 1


def central_chunks(chunk_of: IntVector, term_of: IntVector, counts: IntVector, n_chunks: int) -> FloatVector:
    """Return how central each chunk is: the stationary distribution of the walk.

    Args:
        chunk_of, term_of, counts: (n,) that a chunk (0 to n_chunks − 1) has a term so many times, each pair once.
        n_chunks: number of chunks; one without a term that another has is reached by restarts alone.

    Returns:
        (n_chunks,) scores that add up to 1, rounded.
    """
    if not n_chunks:
        return np.zeros(0)
    weights = _weights(chunk_of, term_of, counts, n_chunks)
    order = np.lexsort((term_of, chunk_of))  # the order of the sums
    order = order[weights[order] > 0]
    chunk_of, term_of, weights = chunk_of[order], term_of[order], weights[order]
    from_chunk = _inverse(np.bincount(chunk_of, weights, minlength=n_chunks))
    from_term = _inverse(np.bincount(term_of, weights))
    isolated = from_chunk == 0
    score = np.full(n_chunks, 1.0 / n_chunks)
    for _ in range(_MAX_STEPS):
        at_terms = from_term * np.bincount(term_of, weights * (from_chunk * score)[chunk_of])
        walked = np.bincount(chunk_of, weights * at_terms[term_of], minlength=n_chunks)
        stuck = score[isolated].sum()
        after = (1.0 - RESTART) * (walked + stuck / n_chunks) + RESTART / n_chunks
        change = np.abs(after - score).sum()
        score = after
        if change <= _TOLERANCE:
            break
    return np.round(score, _DIGITS)


def _weights(chunk_of: IntVector, term_of: IntVector, counts: IntVector, n_chunks: int) -> FloatVector:
    """Return (n,) tf-idf of each pair; 0 for terms of one chunk alone, and beyond the `KEYWORDS` best of a chunk."""
    found_in = np.bincount(term_of)[term_of] if len(term_of) else np.zeros(0, np.int64)
    idf = np.log((n_chunks + 1.0) / (found_in + 0.5))
    weights = np.where(found_in > 1, np.maximum(np.log1p(counts) * idf, 0.0), 0.0)
    order = np.lexsort((term_of, -np.round(weights, _DIGITS), chunk_of))
    first = np.r_[True, np.diff(chunk_of[order]) != 0] if len(order) else np.zeros(0, bool)
    starts = np.flatnonzero(first)
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    weights[order[rank >= KEYWORDS]] = 0.0
    return weights


def _inverse(sums: NDArray[Any]) -> FloatVector:
    """Return 1 / sum, 0 where the sum is 0."""
    found: FloatVector = np.divide(1.0, sums, out=np.zeros(len(sums)), where=sums > 0)
    return found


def chosen(scores: FloatVector, ids: list[str], sizes: IntVector, max_tokens: int) -> NDArray[np.bool_]:
    """Return (n,) which chunks are the most central ones that together have at most `max_tokens` tokens.

    They are taken one after another, ties by the smaller id, up to the first that does not fit.

    Args:
        sizes: (n,) tokens of each chunk.
    """
    order = sorted(range(len(ids)), key=lambda row: (-scores[row], ids[row]))
    found = np.zeros(len(ids), bool)
    fits = np.cumsum(sizes[order]) <= max_tokens if order else np.zeros(0, bool)
    found[np.array(order, np.int64)[fits]] = True
    return found


def allowance(share: float, new_tokens: int, kept_tokens: int = 0, kept_by_model: int = 0) -> int:
    """Return the tokens of new chunks that the model reads, so that it has read the share of all.

    Chunks that stay keep what has read them, whatever their centrality is now.

    Args:
        share: of the tokens of all chunks.
        new_tokens: of chunks that are extracted now.
        kept_tokens, kept_by_model: of chunks of the base that stay, and of those of them that the model has read.

    >>> allowance(0.3, 1000), allowance(0.3, 100, 9900, 3000), allowance(0.3, 100, 9900, 2950)
    (300, 0, 50)
    """
    return max(round(share * (new_tokens + kept_tokens)) - kept_by_model, 0)
