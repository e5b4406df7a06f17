"""Rows of tables with the columns that a test is about; the others are empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa


def filled_row(schema: pa.Schema, **given: Any) -> dict[str, Any]:
    """Return a row whose other columns are None where they may be, else empty texts and lists, zeros and False."""
    return {field.name: _empty(field) for field in schema} | given


def filled_table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return a table of rows that name some of its columns."""
    return pa.Table.from_pylist([filled_row(schema, **given) for given in rows], schema)


def _empty(field: pa.Field) -> Any:
    kind = field.type
    if field.nullable:
        return None
    if pa.types.is_list(kind):
        return []
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_binary(kind):
        return b""
    return "" if pa.types.is_string(kind) else 0
