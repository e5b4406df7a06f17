"""Texts of records in contexts, cached between questions with their token counts."""

from __future__ import annotations

from collections.abc import Callable

from hirag_dist.core.retrieval.context import MakeText
from hirag_dist.core.retrieval.record_texts import UNKNOWN_FORM

Rendering = Callable[[str, int], tuple[int, int]]  # (level, row) → tokens of a stored text, 0: unknown; its form


class RecordTextCache:
    """Texts of records and their tokens, up to a number of characters; the oldest are removed first."""

    def __init__(
        self, count: Callable[[str], int], max_chars: int = 16 << 20, stored: RecordTextCache | None = None
    ) -> None:
        """Begin empty.

        Args:
            count: tokens of a text.
            max_chars: of all texts together.
            stored: has the records that are the same in all views; None: this cache.
        """
        self._stored = stored
        self._count = count
        self._max_chars = max_chars
        self._chars = 0
        self._records: dict[tuple[str, int], tuple[str, int]] = {}

    def uncached(self, make: MakeText) -> tuple[str, int]:
        """Return the text and tokens of a record that few questions retrieve."""
        text = make(UNKNOWN_FORM)
        return text, self._count(text)

    def rebuilt(self, level: str, row: int, make: MakeText) -> tuple[str, int]:
        """Return the text and tokens of a record of which the view has a part; the arguments are those of `get`."""
        return self._record(level, row, None, make)

    def get(self, level: str, row: int, rendering: Rendering, make: MakeText) -> tuple[str, int]:
        """Return the text and tokens of a record that is the same in all views.

        Args:
            level: of the record; with `row` its key.
            row: of the record.
            rendering: of the record.
            make: makes the text.
        """
        return (self._stored or self)._record(level, row, rendering, make)

    def _record(self, level: str, row: int, rendering: Rendering | None, make: MakeText) -> tuple[str, int]:
        key = (level, row)
        record = self._records.get(key)
        if record is None:
            tokens, form = (0, UNKNOWN_FORM) if rendering is None else rendering(level, row)
            text = make(form)
            record = self._records[key] = text, tokens or self._count(text)
            self._chars += len(text)
            while self._chars > self._max_chars:
                oldest, _ = self._records.pop(next(iter(self._records)))
                self._chars -= len(oldest)
        return record
