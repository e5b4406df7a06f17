"""An embedder that needs nothing: words and pieces of words hashed into a vector. Near means: written alike."""

from __future__ import annotations

import asyncio
import threading
import unicodedata
import zlib
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hirag_dist.llm.rule_based.language import ADVERBS, FOREIGN, FUNCTION, GENERIC, HAN_RUN, UNSPACED, WORD, stem
from hirag_dist.types import FloatMatrix

_BATCH = 4096
_INLINE = 64  # fewer texts are not worth a thread
_MAX_WORDS = 200_000
_MIX_INT = 0x9E3779B97F4A7C15
_MIX = np.uint64(_MIX_INT)
_MASK = 2**64 - 1
# Weights are whole numbers, so that sums are exact and do not depend on their order.
_WORD, _GRAM, _PAIR = 96, 72, 40
_OFTEN = np.rint(16 * np.sqrt(np.arange(257))).astype(np.int64)  # sublinear in how often a word occurs


class HashingEmbedder:
    """Character 3- to 5-grams, stemmed words and pairs of them, hashed with signs into `dim` numbers.

    It knows no meaning: "car" and "automobile" are as far apart as any two words. The same text has the same bits
    whatever it is embedded with, on any machine.
    """

    def __init__(self, dim: int = 384, seed: int = 0) -> None:
        """Take the length of the vectors and what chooses the hash. Raises ValueError where dim < 8."""
        if dim < 8:
            raise ValueError(f"dim must be at least 8, got {dim}")
        self.dim = dim
        self.name = f"hashing-{dim}" if seed == 0 else f"hashing-{dim}-{seed}"
        self._vocabulary = _Vocabulary(dim, seed)
        self._lock = threading.Lock()

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length; a text without a word gives a row of zeros."""
        if len(texts) < _INLINE:
            return self.embed_now(texts)
        return await asyncio.to_thread(self.embed_now, texts)

    def embed_now(self, texts: Sequence[str]) -> FloatMatrix:
        """Return the vectors of `embed`, synchronously."""
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        with self._lock:
            for start in range(0, len(texts), _BATCH):
                part = texts[start : start + _BATCH]
                rows[start : start + len(part)] = _unit(self._vocabulary.sums(part))
        return rows


class _Vocabulary:
    """The features of every word met so far, as one sparse matrix; forgotten when it grows too large."""

    def __init__(self, dim: int, seed: int) -> None:
        self._dim = dim
        self._seed = seed & 0xFFFFFFFF
        self._clear()

    def _clear(self) -> None:
        self._ids: dict[str, int] = {}
        self._starts = array("q", [0])  # start of each word's features, and the end of the last
        self._hashes = array("Q")
        self._damping = array("q")
        self._columns = array("i")
        self._values = array("i")

    def sums(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return (len(texts), dim) sums of features, whole numbers."""
        if len(self._ids) > _MAX_WORDS:
            self._clear()
        flat: list[int] = []
        sizes: list[int] = []
        ids = self._ids
        for text in texts:
            words = _words(text)
            try:
                flat.extend([ids[word] for word in words])
            except KeyError:
                flat.extend([self._id(word) for word in words])
            sizes.append(len(words))
        words_flat = np.array(flat, dtype=np.int64)
        text_of = np.repeat(np.arange(len(texts), dtype=np.int64), sizes)
        total = np.zeros(len(texts) * self._dim, dtype=np.float64)
        for places, values in (self._word_features(words_flat, text_of), self._pair_features(words_flat, text_of)):
            total += np.bincount(places, weights=values, minlength=len(total))
        return total.reshape(len(texts), self._dim)

    def _word_features(
        self, words: NDArray[np.int64], text_of: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        keys, counts = np.unique(text_of * (len(self._ids) + 1) + words, return_counts=True)
        text, word = np.divmod(keys, len(self._ids) + 1)
        starts = np.frombuffer(self._starts, np.int64)
        columns, values = np.frombuffer(self._columns, np.int32), np.frombuffer(self._values, np.int32)
        lengths = starts[word + 1] - starts[word]
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts[word] - (ends - lengths), lengths)
        often = _OFTEN[np.minimum(counts, 256)]
        return (
            np.repeat(text * self._dim, lengths) + columns[places],
            (values[places] * np.repeat(often, lengths)).astype(np.float64),
        )

    def _pair_features(
        self, words: NDArray[np.int64], text_of: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        if len(words) < 2:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        same = text_of[1:] == text_of[:-1]
        first, second = words[:-1][same], words[1:][same]
        hashes, damping = np.frombuffer(self._hashes, np.uint64), np.frombuffer(self._damping, np.int64)
        mixed = (hashes[first] * np.uint64(3) + hashes[second]) * _MIX
        columns = (mixed >> np.uint64(33)).astype(np.int64) % self._dim
        signs = np.where(mixed >> np.uint64(63), 1, -1)
        weight = _PAIR * np.minimum(damping[first], damping[second])
        return text_of[:-1][same] * self._dim + columns, (signs * weight).astype(np.float64)

    def _id(self, word: str) -> int:
        known = self._ids.get(word)
        if known is not None:
            return known
        columns, values, damping = self._features(word)
        self._columns.extend(columns)
        self._values.extend(values)
        self._starts.append(len(self._columns))
        self._hashes.append(self._hash(stem(word)))
        self._damping.append(damping)
        return self._ids.setdefault(word, len(self._ids))

    def _features(self, word: str) -> tuple[list[int], list[int], int]:
        """Return (columns, signed weights, weight of 16) of a word: its stem, and the pieces of its spelling."""
        damping = _damping(word)
        hashes = [self._hash(stem(word))]
        values = [_WORD * damping // 16]
        spelled = f"<{word}>"
        grams = [spelled[at : at + size] for size in (3, 4, 5) for at in range(len(spelled) - size + 1)][:40]
        if grams and damping > 4:
            hashes += [self._hash(f"#{gram}") for gram in grams]
            each = round(_GRAM * damping / 16 / len(grams) ** 0.5)
            values += [each] * len(grams)
        columns = [(one >> 33) % self._dim for one in hashes]
        return columns, [value if one >> 63 else -value for one, value in zip(hashes, values, strict=True)], damping

    def _hash(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        mixed = ((zlib.crc32(data, self._seed) << 32 | zlib.adler32(data)) * _MIX_INT) & _MASK
        return ((mixed ^ mixed >> 29) * _MIX_INT) & _MASK


def _words(text: str) -> list[str]:
    lowered = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    words: list[str] = WORD.findall(lowered)
    if not text.isascii() and UNSPACED.search(lowered):
        return [piece for word in words for piece in _pieces(word)]
    return words


def _pieces(word: str) -> list[str]:
    """Characters and pairs of an unspaced script stand for its words."""
    if not UNSPACED.search(word):
        return [word]
    runs = HAN_RUN.findall(word) or [word]
    return [piece for run in runs for piece in (*run, *(run[at : at + 2] for at in range(len(run) - 1)))]


def _damping(word: str) -> int:
    if word in FUNCTION or word in FOREIGN or word in ADVERBS:
        return 2
    if len(word) == 1:
        return 6 if UNSPACED.match(word) else 2
    if word.isdigit():
        return 6
    return 9 if word in GENERIC else 16


def _unit(sums: NDArray[np.float64]) -> FloatMatrix:
    lengths = np.sqrt(np.square(sums).sum(axis=1, keepdims=True))
    rows: FloatMatrix = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0).astype(np.float32)
    return rows
