"""Metadata fields of documents: names and types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

FieldType = Literal["string", "number", "date", "bool"]
MetadataValue = str | float | bool | tuple[str | float | bool, ...]
RESERVED_WORDS: Final = frozenset(
    ("and", "or", "not", "in", "has", "any", "all", "is", "missing", "starts", "with", "true", "false")
)
"""Words of filter expressions, in lower case."""
MAX_FIELDS: Final = 64
_NAME = re.compile(r"[^\W\d]\w{0,63}")


@dataclass(frozen=True, slots=True)
class MetadataField:
    """A declared field.

    Attributes:
        list: whether a document may have several values.
    """

    name: str
    type: FieldType
    list: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({'list of ' if self.list else ''}{self.type})"


def check_field_name(name: str) -> str:
    """Return the name of a field.

    Raises:
        ValueError: it cannot be one.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a field: write letters, digits and _, up to 64, no digit first")
    if name.lower() in RESERVED_WORDS:
        raise ValueError(f"{name!r} is a word of filter expressions; choose another name for the field")
    return name
