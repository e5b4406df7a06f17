"""Names of a graph before they are resolved: forms, descriptions, and what they have in common, as sparse matrices."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array

from hirag_dist.core.entities.merging import merge_groups
from hirag_dist.core.entities.resolution.name_forms import NameForm, is_acronym_of, name_form
from hirag_dist.core.entities.resolution.word_lists import SMALL_WORDS
from hirag_dist.core.groupby import numbered
from hirag_dist.types import IntVector

MEANINGFUL = 3  # words of a description that says something
_BATCH = 200_000  # pairs of which the common values are counted at a time
_LONGEST = 9  # words of a long form
_NOT_WORDS = r"[^\p{L}\p{M}\p{N}_&]+"
_WORD = re.compile(r"[\w&]+")
_SHORT = re.compile(r"[(（][\"“'‘]?([^\W\d_][\w&.\-]{1,9})[\"”'’]?[)）]")
_KNOWN_AS = re.compile(
    r"(?:also known as|also called|a\.k\.a\.|\baka\b|better known as|commonly known as|abbreviated(?: as)?|"
    r"also referred to as|также известн\w+ как|сокращённо|又称|又名|也称|亦称|简称)"
    r"\s*(?:the |a |an )?[\"“'‘«「]?([^,.;:()\"“”«»「」，。；：（）]{2,60})"
)


class Name(NamedTuple):
    """A name as all its mentions have it.

    Attributes:
        text: the most frequent form.
        description: the distinct ones, one a line.
        stated: other names that the description states, with weights: "also known as the Bard", "Long Form (LF)".
    """

    row: int
    key: str
    text: str
    type: str
    description: str
    n_mentions: int
    form: NameForm
    stated: dict[str, float]


class Names:
    """The names of a graph by row, in the order of their keys."""

    def __init__(self, mentions: pa.Table, relation_mentions: pa.Table) -> None:
        """Read MENTIONS and RELATION_MENTIONS, in any order."""
        key_of, keys = numbered(mentions["name_key"])
        self._table = merge_groups(mentions, key_of, keys.to_pylist())
        columns = ("entity_id", "name", "type", "description", "n_mentions")
        self.rows: list[Name] = []
        for key, text, kind, said, count in zip(*(self._table[name].to_pylist() for name in columns), strict=True):
            form = name_form(text, kind)
            self.rows.append(Name(len(self.rows), key, text, kind, said, count, form, _stated(form, kind, said)))
        keys = self._table["entity_id"].combine_chunks()
        ends = [pc.index_in(relation_mentions[name], value_set=keys) for name in ("source_key", "target_key")]
        there = pc.and_(*(end.is_valid() for end in ends))
        source, target = (end.filter(there).to_numpy() for end in ends)
        strengths = np.tile(relation_mentions["strength"].filter(there).to_numpy(), 2)
        around = np.concatenate([source, target]), np.concatenate([target, source])
        self.neighbours = csr_array((strengths, around), shape=(len(self.rows), len(self.rows)))
        self.neighbours.sum_duplicates()

    @cached_property
    def chunks(self) -> csr_array:
        """(n_names, n_chunks) 1 where a chunk mentions a name."""
        return _sets(self._table["chunk_ids"])[0]

    @cached_property
    def told(self) -> csr_array:
        """(n_names, n_words) 1 where a description has a meaningful word that the name itself has not."""
        split = pc.split_pattern_regex(pc.utf8_lower(self._table["description"]), _NOT_WORDS)
        told, words = _sets(split)
        is_meaningful = np.array([word != "" and word not in SMALL_WORDS for word in words.to_pylist()], bool)
        told, kept = told[:, is_meaningful], words.filter(pa.array(is_meaningful))
        owners = np.repeat(np.arange(len(self.rows)), [len(name.form.words) for name in self.rows])
        own = pc.index_in(pa.array([word for name in self.rows for word in name.form.words], pa.string()), kept)
        there = own.is_valid().to_numpy(zero_copy_only=False)
        at = owners[there], own.drop_null().to_numpy()
        told = told - told.multiply(csr_array((np.ones(len(at[0])), at), shape=told.shape) > 0)
        told.eliminate_zeros()
        return told

    @cached_property
    def lines(self) -> csr_array:
        """(n_names, n_lines) number of meaningful words of a description's lines that have `MEANINGFUL` of them."""
        split = pc.split_pattern(pc.utf8_lower(self._table["description"]), "\n")
        found, lines = _sets(split, " .")
        counts = np.array([len(set(line.split()) - SMALL_WORDS) for line in lines.to_pylist()], np.float64)
        return found[:, counts >= MEANINGFUL].multiply(counts[counts >= MEANINGFUL][None, :]).tocsr()

    def nearest(self, row: int, n: int) -> list[str]:
        """Return the keys of the most strongly related names."""
        one, other = self.neighbours.indptr[row : row + 2]
        near, strength = self.neighbours.indices[one:other], self.neighbours.data[one:other]
        return [self.rows[at].key for at in near[np.lexsort((near, -strength))[:n]]]


def common(sets: csr_array, left: IntVector, right: IntVector) -> IntVector:
    """Return the sum of the products of two rows of a matrix, for each pair: for sets the values in both."""
    parts = [
        sets[left[at : at + _BATCH]].multiply(sets[right[at : at + _BATCH]]).sum(axis=1)
        for at in range(0, len(left), _BATCH)
    ]
    return np.concatenate([np.zeros(0), *parts])


def _sets(column: pa.ChunkedArray, stripped: str = "") -> tuple[csr_array, pa.Array]:
    """Return the matrix of lists of texts, 1 where a row's list has the column's text, and the texts."""
    lists = column.combine_chunks()
    flat = lists.flatten()
    encoded = (pc.utf8_trim(flat, stripped) if stripped else flat).dictionary_encode()
    owners = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())
    at = owners, encoded.indices.to_numpy()
    found = csr_array((np.ones(len(owners)), at), shape=(len(lists), len(encoded.dictionary)))
    found.sum_duplicates()
    found.data[:] = 1.0
    return found, encoded.dictionary


def _stated(form: NameForm, kind: str, description: str) -> dict[str, float]:
    found = {name_form(other, kind).text: 1.5 for other in _KNOWN_AS.findall(description)}
    for match in _SHORT.finditer(description):
        short = match.group(1).rstrip(".-")
        for word in [*_WORD.finditer(description, 0, match.start())][-_LONGEST:]:
            long = description[word.start() : match.start()].strip()
            if is_acronym_of(short, long):
                text = name_form(long, kind).text
                if form.acronym == short:
                    found[text] = 3.5
                elif form.text == text:
                    found[short] = 3.5
    return found
