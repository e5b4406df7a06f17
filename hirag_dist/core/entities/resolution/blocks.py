"""Candidate pairs of names, from blocks of names that have something in common.

Everything here is a pass over arrays, so that a million names take seconds. Which pairs are candidates depends on the
names and descriptions that are there and on nothing else: two names by themselves, and how many share their block.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.entities.resolution.name_forms import LETTERS, NO_NAMES, plain_word
from hirag_dist.core.entities.resolution.word_lists import NICKNAMES
from hirag_dist.core.groupby import Numbers, lists
from hirag_dist.types import IntVector

_MAX_BLOCK = 64  # names that something brings together: what more names have tells nothing
_MAX_DESCRIBED = 12  # names that texts describe in the same words
_BASE = r"^(?P<text>[^(,]*[^(, ])(?: ?\(|, )"  # "Mercury (planet)", "Newbury, New Hampshire"
_ASIDE = r"\((?P<text>[^()]+)\)$"
SHORT = r"[(（][\"“'‘]?(?P<text>\p{L}[\w&.\-]{1,9})[\"”'’]?[)）]"
KNOWN_AS = (
    r"(?:also known as|also called|a\.k\.a\.|\baka\b|better known as|commonly known as|abbreviated(?: as)?|"
    r"also referred to as|также известн\w+ как|сокращённо|又称|又名|也称|亦称|简称)"
    r"\s*(?:the |a |an )?[\"“'‘«「]?(?P<text>[^,.;:()\"“”«»「」，。；：（）]{2,60})"
)
_FOLDS = (  # patterns, and what stands for them in the words of a block
    (r"\p{Mn}+", ""),
    (r"['’`ʼ]s\b", ""),
    (r"['’`ʼ]", ""),
    (r"&", " and "),
    (r"(\d)[.,](\d)", r"\1\2"),
    (r"(\p{L})(\p{N})", r"\1 \2"),
    (r"(\p{N})(\p{L})", r"\1 \2"),
    (r"[^\p{L}\p{M}\p{N}]+", " "),
)
Pairs = tuple[IntVector, IntVector]
Mask = NDArray[np.bool_]


class NameBlocks:
    """What names and descriptions have in common, as numbers.

    Each text is a name, a name without what stands behind it, what stands in parentheses there, or another name that a
    description states. A block is a number that texts share: of their words in any order, their letters, …
    """

    def __init__(self, keys: pa.Array, rows: IntVector, descriptions: pa.Array) -> None:
        """Read names and descriptions.

        Args:
            keys: (n_names,) distinct name keys.
            rows: (n_mentions,) the name of each mention.
            descriptions: (n_mentions,) of the mentions.
        """
        self._n_names, self._rows = len(keys), rows
        texts, owners, mentions = [pc.cast(keys, pa.string())], [np.arange(len(keys))], [np.full(len(keys), -1)]
        for source, pattern in ((keys, _BASE), (keys, _ASIDE), (descriptions, SHORT), (descriptions, KNOWN_AS)):
            found = pc.struct_field(pc.extract_regex(source, pattern), "text")
            at = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            texts.append(pc.utf8_lower(found.take(at)))
            owners.append(at if source is keys else rows[at])
            mentions.append(np.full(len(at), -1) if source is keys else at)
        self._owners, self._mentions = np.concatenate(owners), np.concatenate(mentions)
        lowered = pc.utf8_trim(pc.utf8_lower(descriptions), " .")
        self._descriptions, _ = _numbered(lowered)
        self._said = pc.greater(pc.count_substring(lowered, " "), 1).to_numpy(zero_copy_only=False)
        self._read_words(pa.concat_arrays(texts))

    def _read_words(self, texts: pa.Array) -> None:
        """Set the words of texts, each once, and the numbers that are made of them."""
        for one, other in LETTERS.items():
            texts = pc.replace_substring(texts, one, other)
        texts = reduce(
            lambda text, fold: pc.replace_substring_regex(text, *fold), _FOLDS, pc.utf8_normalize(texts, "NFKD")
        )
        split = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts))
        text_of = np.repeat(np.arange(len(split)), split.value_lengths().to_numpy())
        seen_of, seen = _numbered(split.flatten())
        words = seen.to_pylist()
        word_of, plain = _numbered(pa.array([plain_word(word) for word in words], pa.string()))
        names = np.array([word not in NO_NAMES for word in words], bool)[seen_of]
        names |= (np.bincount(text_of, names, minlength=len(split)) == 0)[text_of]
        kept_text, kept_word = text_of[names], word_of[seen_of[names]]
        starts = np.searchsorted(kept_text, np.arange(len(split) + 1))
        begins = pc.utf8_slice_codeunits(seen, 0, 1)
        joined = [
            lists(starts, plain.take(kept_word)),
            lists(starts, begins.take(seen_of[names])),
            lists(np.searchsorted(text_of, np.arange(len(split) + 1)), begins.take(seen_of)),
        ]
        letters, _ = _numbered(pa.concat_arrays([pc.binary_join(each, "") for each in joined]))
        self._letters, *self._initials = np.split(letters, 3)
        self._n_letters = starts[1:] - starts[:-1]
        given = pa.array([NICKNAMES.get(word, word)[:3] for word in plain.to_pylist()], pa.string())
        given_of, _ = _numbered(given)
        initial_of, _ = _numbered(pc.utf8_slice_codeunits(given, 0, 1))
        first, last = kept_word[starts[:-1]], kept_word[starts[1:] - 1].astype(np.int64) * len(plain)
        self._namesakes = np.flatnonzero(self._n_letters > 1)
        self._given, self._initial = (
            (last + given_of[first])[self._namesakes],
            (last + initial_of[first])[self._namesakes],
        )
        self._is_initial = (pc.utf8_length(plain).to_numpy() == 1)[first]
        self._words_of(np.unique(kept_text * len(plain) + kept_word), plain)

    def _words_of(self, distinct: IntVector, plain: pa.Array) -> None:
        """Set the distinct words of texts, and hashes of the sets."""
        self._text, self._word = distinct // len(plain), distinct % len(plain)
        first = np.searchsorted(self._text, np.arange(len(self._owners)))
        self._n_words = np.bincount(self._text, minlength=len(self._owners))
        hashes = np.random.default_rng(0).integers(1 << 63, size=len(plain), dtype=np.uint64)[self._word]
        self._set = np.add.reduceat(hashes, first) if len(first) else hashes
        bits = np.left_shift(np.uint64(1), (self._word % 64).astype(np.uint64))
        self._bits = np.bitwise_or.reduceat(bits, first) if len(first) else bits
        whole = self._text < self._n_names
        self._text, self._word = self._text[whole], self._word[whole]

    def pairs(self, mentions: Mask) -> IntVector:
        """Return the candidate pairs of the names with one of some mentions: left · n_names + right, ascending.

        Args:
            mentions: (n_mentions,) mask of the mentions that count.
        """
        names = np.zeros(self._n_names, bool)
        names[self._rows[mentions]] = True
        there = names[self._owners] & ((self._mentions < 0) | mentions[self._mentions])
        texts = np.flatnonzero(there)
        found = [_within(block[texts], texts) for block in (self._set, self._letters)]
        long = np.flatnonzero(there & (self._n_letters > 1))
        found += [_between(self._letters[texts], texts, block[long], long) for block in self._initials]
        full = there[self._namesakes]
        found.append(_within(self._given[full], self._namesakes[full]))
        one, other = _within(self._initial[full], self._namesakes[full])
        short = self._is_initial[one] | self._is_initial[other]
        found.append((one[short], other[short]))
        found.append(self._parts(there))
        left, right = (self._owners[np.concatenate(side)] for side in zip(*found, strict=True))
        said = np.flatnonzero(mentions & self._said)
        alike = np.unique(self._descriptions[said].astype(np.int64) * self._n_names + self._rows[said])
        one, other = _within(alike // max(self._n_names, 1), alike % max(self._n_names, 1), _MAX_DESCRIBED)
        left, right = np.concatenate([left, one]), np.concatenate([right, other])
        left, right = np.minimum(left, right), np.maximum(left, right)
        apart = left != right
        return np.unique(left[apart] * self._n_names + right[apart])

    def _parts(self, there: Mask) -> Pairs:
        """Return the names all of whose words are another name's, which has more."""
        entries = np.flatnonzero(there[self._text])
        text, word = self._text[entries], self._word[entries]
        spread = np.bincount(word)[word]
        order = np.lexsort((spread, text))
        rarest = order[np.flatnonzero(np.diff(text[order], prepend=-1))]
        one, other = _between(word[rarest], text[rarest], word, text)
        part = (self._n_words[one] < self._n_words[other]) & (self._bits[one] & ~self._bits[other] == 0)
        return one[part], other[part]


def _numbered(texts: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return the number of each text, and the texts by number."""
    encoded = texts.dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary


def _within(blocks: Numbers, rows: IntVector, limit: int = _MAX_BLOCK) -> Pairs:
    """Return the pairs of rows that share a block, where it has at most so many rows."""
    order = np.argsort(blocks, kind="stable")
    starts = np.flatnonzero(np.diff(blocks[order]) != 0) + 1
    bounds = np.concatenate([[0], starts, [len(order)]])
    sizes = np.diff(bounds)
    ends = np.repeat(np.where((sizes > 1) & (sizes <= limit), bounds[1:], 0), sizes)
    counts = np.maximum(ends - np.arange(len(order)) - 1, 0)
    first = np.repeat(np.arange(len(order)), counts)
    second = first + 1 + np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows[order[first]], rows[order[second]]


def _between(
    left: Numbers, left_rows: IntVector, right: Numbers, right_rows: IntVector, limit: int = _MAX_BLOCK
) -> Pairs:
    """Return the pairs of a left and a right row that share a block, where it has at most so many right rows."""
    order = np.argsort(right, kind="stable")
    starts = np.searchsorted(right, left, sorter=order)
    counts = np.searchsorted(right, left, side="right", sorter=order) - starts
    counts[counts > limit] = 0
    first = np.repeat(np.arange(len(left)), counts)
    second = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(len(first))
    return left_rows[first], right_rows[order[second]]
