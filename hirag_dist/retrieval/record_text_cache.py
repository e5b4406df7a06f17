"""Texts of records in contexts, cached between questions with their token counts."""

from __future__ import annotations

from collections.abc import Callable


class RecordTextCache:
    """Texts of records and their tokens, up to a number of characters; the oldest are removed first."""

    def __init__(self, count: Callable[[str], int], max_chars: int = 16 << 20) -> None:
        """Begin empty.

        Args:
            count: tokens of a text.
            max_chars: of all texts together.
        """
        self._count = count
        self._max_chars = max_chars
        self._chars = 0
        self._records: dict[tuple[str, int], tuple[str, int]] = {}

    def uncached(self, make: Callable[[], str]) -> tuple[str, int]:
        """Return the text and tokens of a record that differs between callers, or that few questions retrieve."""
        text = make()
        return text, self._count(text)

    def get(self, level: str, row: int, tokens: Callable[[str, int], int], make: Callable[[], str]) -> tuple[str, int]:
        """Return a record's text and tokens.

        Args:
            level: of the record; with `row` its key.
            row: of the record.
            tokens: (level, row) → tokens of the text, 0 where they are unknown.
            make: makes the text.
        """
        key = (level, row)
        record = self._records.get(key)
        if record is None:
            text = make()
            record = self._records[key] = text, tokens(level, row) or self._count(text)
            self._chars += len(text)
            while self._chars > self._max_chars:
                oldest, _ = self._records.pop(next(iter(self._records)))
                self._chars -= len(oldest)
        return record
