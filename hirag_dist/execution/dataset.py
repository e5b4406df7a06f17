"""A table as files in the store: what a stage reads and gives."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DatasetPart:
    """A Parquet file in the store."""

    path: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table as files in the store, in order."""

    schema: pa.Schema
    parts: tuple[DatasetPart, ...]

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)

    def __add__(self, other: Dataset) -> Dataset:
        return Dataset(self.schema, self.parts + other.parts)
