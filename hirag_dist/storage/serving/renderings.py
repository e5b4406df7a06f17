"""Tokens and forms of records as rendered in contexts, found once when a snapshot is published.

Counting the tokens of a record takes longer than retrieving it, and so does the search of a text for what could pass
for a record or a citation. Both results are one number: tokens × 4 + form (`core.retrieval.context`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.reports.material import report_text
from hirag_dist.core.retrieval.context import (
    PLAIN,
    UNKNOWN_FORM,
    community_text,
    entity_text,
    is_plain,
    relation_parts,
    source_text,
    text_form,
)
from hirag_dist.core.text.tokens import counter
from hirag_dist.storage.serving.column_arrays import Batches
from hirag_dist.storage.serving.text_columns import BATCH_ROWS
from hirag_dist.types import IntVector

TOKENIZER: Final = "o200k_base"

Renderings = NDArray[np.int32]  # (n,) one number for each record of a table, −1 where it is not known

_FORMS: Final = 4  # forms that there may be
_REPORT_COLUMNS: Final = ("title", "summary", "findings")  # columns that the texts of reports are made of


def unpacked(rendering: int) -> tuple[int, int]:
    """Return the tokens and the form of a record."""
    return divmod(rendering, _FORMS)


def _packed(texts: Sequence[str], forms: Iterable[int]) -> Renderings:
    return _token_counts(texts) * np.int32(_FORMS) + np.fromiter(forms, np.int32, len(texts))


def _token_counts(texts: Sequence[str]) -> NDArray[np.int32]:
    return np.fromiter(map(counter(TOKENIZER), texts), np.int32, len(texts))


def _completed(
    known: Renderings, batches: Iterable[pa.RecordBatch], render: Callable[[pa.RecordBatch, IntVector], Renderings]
) -> Renderings:
    """Return the known renderings, and for the other rows those that `render` returns for them and their numbers."""
    found, first = known.copy(), 0
    for batch in batches:
        own = found[first : first + batch.num_rows]
        rows = np.flatnonzero(own < 0)
        if len(rows):
            taken = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
            own[rows] = render(taken, first + rows)
        first += batch.num_rows
    return found


def chunk_renderings(batches: Batches, documents: NDArray[np.int32], known: Renderings) -> Renderings:
    """Return the rendering of each chunk; those that are known are not made again.

    Args:
        documents: (n_chunks,) row of the document of each, −1 for an unknown one.
    """
    titles = pa.chunked_array([batch.column(0) for batch in batches("documents", ["title"])], pa.string())

    def render(batch: pa.RecordBatch, rows: IntVector) -> Renderings:
        of = documents[rows]
        named = titles.take(pa.array(of, mask=of < 0)).fill_null("").to_pylist()
        columns = [column.to_pylist() for column in batch.columns]
        return _packed(list(map(source_text, named, *columns)), map(text_form, named, columns[-1]))

    return _completed(known, batches("chunks", ["start", "end", "text"]), render)


def entity_renderings(batches: Batches, known: Renderings) -> Renderings:
    """Return the rendering of each entity; those that are known are not made again."""

    def render(batch: pa.RecordBatch, rows: IntVector) -> Renderings:
        columns = [column.to_pylist() for column in batch.columns]
        is_plain_row = (is_plain(name) and is_plain(described) for name, _, _, described in zip(*columns, strict=True))
        forms = (PLAIN if plain else UNKNOWN_FORM for plain in is_plain_row)
        return _packed(list(map(entity_text, *columns)), forms)

    return _completed(known, batches("entities", ["name", "type", "layer", "description"]), render)


def relation_renderings(batches: Batches, ends: NDArray[np.int32], known: Renderings) -> Renderings:
    """Return the rendering of each relation; those that are known are not made again.

    The names at the ends are those of entities, and relations of one sentence share a description: each distinct text
    is looked at once.

    Args:
        ends: (n_relations, 2) rows of the entities at its ends, −1 for an unknown one.
    """
    open_rows = np.flatnonzero(known < 0)
    found = known.copy()
    if not len(open_rows):
        return found
    tokens, plain = _ends(batches, ends[open_rows])
    sources, targets = ends[open_rows].T
    counts, forms = np.zeros((2, len(known)), np.int32)
    counts[open_rows] = tokens[0, sources] + tokens[1, targets]
    forms[open_rows] = np.where(plain[sources] & plain[targets], PLAIN, UNKNOWN_FORM)
    first = 0
    for batch in batches("relations", ["description"]):
        rows = np.flatnonzero(known[first : first + batch.num_rows] < 0)
        if len(rows):
            described = batch.column(0).take(pa.array(rows)).dictionary_encode()
            texts, at = described.dictionary.to_pylist(), described.indices.to_numpy()
            counts[first + rows] += _token_counts([relation_parts("", "", text)[2] for text in texts])[at]
            forms[first + rows] *= np.fromiter(map(is_plain, texts), np.int32, len(texts))[at]
        first += batch.num_rows
    found[open_rows] = counts[open_rows] * _FORMS + forms[open_rows]
    return found


def _ends(batches: Batches, ends: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return (2, n_entities + 1) tokens of each entity's name as source and as target, and whether it is plain.

    Only the entities at the ends are looked at, and the empty name of an unknown one, in the last row.
    """
    names = pa.chunked_array([batch.column(0) for batch in batches("entities", ["name"])], pa.string())
    tokens = np.zeros((2, len(names) + 1), np.int32)
    plain = np.ones(len(names) + 1, np.bool_)
    for end, counts in enumerate(tokens):
        wanted = np.zeros(len(counts), np.bool_)
        wanted[ends[:, end]] = True
        for first in range(0, len(names), BATCH_ROWS):
            rows = first + np.flatnonzero(wanted[first : min(first + BATCH_ROWS, len(names))])
            named = names.slice(first, BATCH_ROWS).combine_chunks().take(pa.array(rows - first)).to_pylist()
            counts[rows] = _token_counts([relation_parts(name, name, "")[end] for name in named])
            plain[rows] = [is_plain(name) for name in named]
        counts[-1:] = _token_counts(relation_parts("", "", "")[end : end + 1])
    return tokens, plain


def report_renderings(batches: Batches, known: Renderings) -> Renderings:
    """Return the rendering of each report; those that are known are not made again."""

    def render(batch: pa.RecordBatch, rows: IntVector) -> Renderings:
        levels, ratings = (batch[name].to_pylist() for name in ("level", "rating"))
        titles, texts = (column.to_pylist() for column in _report_texts(batch).columns)
        return _packed(list(map(community_text, titles, levels, ratings, texts)), map(text_form, titles, texts))

    return _completed(known, batches("reports", ["level", "rating", *_REPORT_COLUMNS]), render)


def serving_texts(
    batches: Batches,
    table: str,
    columns: Sequence[str],
    chosen: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter,
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a table's serving texts, a batch at a time: of reports `title` and `text`, as contexts hold it.

    Args:
        chosen: returns some rows of batches of the table; by default all.
    """
    if table == "reports":
        return (_report_texts(batch).select(columns) for batch in chosen(batches(table, _REPORT_COLUMNS)))
    return chosen(batches(table, columns))


def _report_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the title and the text of each report."""
    findings = batch["findings"]
    found = findings.flatten()
    pairs = list(zip(*(found.field(name).to_pylist() for name in ("summary", "explanation")), strict=True))
    texts, first = [], 0
    for summary, count in zip(batch["summary"].to_pylist(), findings.value_lengths().to_pylist(), strict=True):
        own = [{"summary": one, "explanation": more} for one, more in pairs[first : first + count]]
        texts.append(report_text({"summary": summary, "findings": own}))
        first += count
    return pa.record_batch([batch["title"], pa.array(texts, pa.large_string())], ["title", "text"])
