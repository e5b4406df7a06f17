"""Names of a graph before they are resolved: forms, descriptions, and what they have in common, as sparse matrices."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array

from hirag_dist.core.entities.merging import merge_groups
from hirag_dist.core.entities.resolution.name_forms import SMALL_WORDS, NameForm, is_acronym_of, name_form
from hirag_dist.core.groupby import ranked
from hirag_dist.types import IntVector

MEANINGFUL = 3  # words of a description that says something
_BATCH = 200_000  # pairs of which the common values are counted at a time
_LONGEST = 9  # words of a long form
_SHORT = re.compile(r"[(（]([^\W\d_][\w&.\-]{1,9})[)）]")
_KNOWN_AS = re.compile(
    r"(?:also known as|also called|a\.k\.a\.|\baka\b|также известн\w+ как|又称|又名|也称)"
    r"\s*(?:the |a |an )?[\"“'‘«「]?([^,.;:()\"“”«»「」，。；：（）]{2,60})"
)


class Name(NamedTuple):
    """A name as all its mentions have it.

    Attributes:
        text: the most frequent form.
        description: the distinct ones, one a line.
        stated: texts of other names that the name or its description states, with the log odds of their being one:
            "Long Form (LF)", "also known as the Bard".
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
    """The names of a graph by row, in the order of their keys.

    Attributes:
        neighbours: (n_names, n_names) strength of relations, in both directions.
        chunks: (n_names, n_chunks) 1 where a chunk mentions a name.
        lines: (n_names, n_lines) number of meaningful words of a description's lines that have `MEANINGFUL` of them.
        told: (n_names, n_words) 1 where a description has a meaningful word that the name itself has not.
    """

    def __init__(self, mentions: pa.Table, relation_mentions: pa.Table) -> None:
        """Read MENTIONS and RELATION_MENTIONS, in any order."""
        key_of, keys = ranked(mentions["name_key"])
        table = merge_groups(mentions, key_of, keys.to_pylist())
        columns = ("entity_id", "name", "type", "description", "n_mentions")
        self.rows: list[Name] = []
        for key, text, kind, said, count in zip(*(table[name].to_pylist() for name in columns), strict=True):
            form = name_form(text, kind)
            self.rows.append(Name(len(self.rows), key, text, kind, said, count, form, _stated(form, kind, said)))
        ends = [pc.index_in(relation_mentions[name], value_set=keys) for name in ("source_key", "target_key")]
        there = pc.and_(*(end.is_valid() for end in ends))
        source, target = (end.filter(there).to_numpy() for end in ends)
        strengths = relation_mentions["strength"].filter(there).to_numpy()
        related = csr_array((strengths, (source, target)), shape=(len(self.rows), len(self.rows)))
        self.neighbours = (related + related.T).tocsr()
        self.chunks = sets(table["chunk_ids"].combine_chunks())[0]
        descriptions = pc.utf8_lower(table["description"]).combine_chunks()
        found, lines = sets(pc.split_pattern(descriptions, "\n"))
        counts = np.array([len(set(line.split()) - SMALL_WORDS) for line in lines.to_pylist()], np.float64)
        self.lines = (found[:, counts >= MEANINGFUL] * counts[counts >= MEANINGFUL]).tocsr()
        split = pc.split_pattern_regex(descriptions, r"[^\p{L}\p{M}\p{N}_&]+")
        own = pa.array([name.form.words for name in self.rows], split.type)
        found, words = sets(pa.concat_arrays([split, own]))
        is_small = pc.is_in(words, value_set=pa.array(["", *SMALL_WORDS])).to_numpy(zero_copy_only=False)
        found = found[:, ~is_small]
        told, own = found[: len(self.rows)], found[len(self.rows) :]
        self.told = (told - told.multiply(own)).tocsr()

    def nearest(self, row: int, n: int) -> list[str]:
        """Return the keys of the most strongly related names."""
        one, other = self.neighbours.indptr[row : row + 2]
        near, strength = self.neighbours.indices[one:other], self.neighbours.data[one:other]
        return [self.rows[at].key for at in near[np.lexsort((near, -strength))[:n]]]


def common(matrix: csr_array, left: IntVector, right: IntVector) -> IntVector:
    """Return the sum of the products of two rows of a matrix, for each pair: for sets the values in both."""
    parts = [
        matrix[left[at : at + _BATCH]].multiply(matrix[right[at : at + _BATCH]]).sum(axis=1)
        for at in range(0, len(left), _BATCH)
    ]
    return np.concatenate([np.zeros(0), *parts])


def sets(lists: pa.ListArray) -> tuple[csr_array, pa.Array]:
    """Return the matrix of lists of texts, 1.0 where a row's list has the column's text, and the texts."""
    encoded = lists.flatten().dictionary_encode()
    starts = np.concatenate([[0], np.cumsum(lists.value_lengths().to_numpy())])
    content = np.ones(starts[-1], np.bool_), encoded.indices.to_numpy(), starts
    found = csr_array(content, shape=(len(lists), len(encoded.dictionary)))
    found.sum_duplicates()
    return found.astype(np.float64), encoded.dictionary


def _stated(form: NameForm, kind: str, description: str) -> dict[str, float]:
    found = {form.aside: -2.0} if form.aside else {}
    found |= {name_form(other, kind).text: 1.5 for other in _KNOWN_AS.findall(description)}
    for match in _SHORT.finditer(description):
        short, words = match[1].rstrip(".-"), description[: match.start()].split()[-_LONGEST:]
        for long in (" ".join(words[at:]) for at in range(len(words))):
            text = name_form(long, kind).text if is_acronym_of(short, long) else ""
            if text and (form.acronym == short or form.text == text):
                found[text if form.acronym == short else short.upper()] = 3.5
    return found | ({form.acronym.upper(): 4.0} if form.acronym and len(form.words) > 1 else {})
