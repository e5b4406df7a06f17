"""Staleness of the summaries and reports of an index: which are due, weighted by their length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.types import IntVector

_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class StaleTexts:
    """Texts of one kind, and how many of them are due to be written again.

    Attributes:
        units: summaries or reports that a model or the rules wrote.
        due: units that are due: their material has changed too much, or they are stand-ins.
        tokens: of all units, at four characters a token.
        due_tokens: of the units that are due.
        changed_tokens: tokens of each unit times the share of its material that has changed, added up.
    """

    units: int
    due: int
    tokens: int
    due_tokens: int
    changed_tokens: int

    @property
    def due_share(self) -> float:
        """Share of the tokens that is due; 0.0 without any text."""
        return self.due_tokens / self.tokens if self.tokens else 0.0

    @property
    def changed_share(self) -> float:
        """Mean share of the material that has changed, weighted by tokens; 0.0 without any text."""
        return self.changed_tokens / self.tokens if self.tokens else 0.0


def stale_summaries(summaries: pa.Table) -> StaleTexts:
    """Return the staleness of SUMMARIES; `entities`, `covers`, `stale_share` and `stale_since` are read."""
    chars = _chars_of_items(summaries["entities"], ("name", "type", "description"))
    return _stale(chars + _chars_of_items(summaries["covers"], ("description",)), summaries)


def stale_reports(report_inputs: pa.Table, reports: pa.Table) -> StaleTexts:
    """Return the staleness of the reports in REPORT_INPUTS.

    Args:
        report_inputs: `community_id`, `stale_share` and `stale_since` are read.
        reports: REPORTS, with their texts; a report that is missing counts no token.
    """
    chars = _chars_of_items(reports["findings"], ("summary", "explanation"))
    for name in ("title", "summary", "rating_explanation"):
        chars += _lengths(reports[name].combine_chunks())
    rows = rows_of(report_inputs["community_id"], reports["community_id"])
    return _stale(np.where(rows >= 0, np.append(chars, 0)[rows], 0), report_inputs)


def _stale(chars: IntVector, written: pa.Table) -> StaleTexts:
    tokens = -(-chars // _CHARS_PER_TOKEN)
    due = written["stale_since"].to_numpy() > 0
    changed = tokens * written["stale_share"].to_numpy().astype(np.float64)
    return StaleTexts(len(due), int(due.sum()), int(tokens.sum()), int(tokens[due].sum()), round(float(changed.sum())))


def _chars_of_items(column: pa.ChunkedArray, names: tuple[str, ...]) -> IntVector:
    """Return (n_rows,) the characters of some fields of the structs in each row's list."""
    totals = [np.zeros(0, np.int64)]
    for chunk in column.chunks:
        sizes = chunk.value_lengths().to_numpy(zero_copy_only=False)
        items = chunk.flatten()
        chars = sum((_lengths(items.field(name)) for name in names), np.zeros(len(items), np.int64))
        until = np.concatenate([[0], np.cumsum(chars)])
        ends = np.cumsum(sizes)
        totals.append(until[ends] - until[ends - sizes])
    return np.concatenate(totals).astype(np.int64)


def _lengths(texts: pa.Array) -> IntVector:
    found: IntVector = pc.utf8_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
    return found
