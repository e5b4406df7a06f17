"""Filter expressions: conditions on metadata, joined by `and`, `or` and `not`, as trees without positions and spelling.

A document without a value meets no condition on the field except `is missing`; `not`, `!=` and `not in` are the
opposite of the condition, so such a document meets them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hirag_dist.core.metadata.dates import Period

Operator = Literal["=", "<", "<=", ">", ">="]
Operand = str | float | bool | Period


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """A field's value compared with another; a list meets it where one of its values does."""

    field: str
    operator: Operator
    value: Operand


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the field's values is one of these."""

    field: str
    values: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """The values of a list include all of these."""

    field: str
    values: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """One of the field's strings starts with this one."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class IsMissing:
    """The field has no value."""

    field: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    term: Expression


@dataclass(frozen=True, slots=True)
class And:
    """All terms."""

    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one term."""

    terms: tuple[Expression, ...]


Expression = FieldComparison | OneOf | AllOf | Prefix | IsMissing | Not | And | Or
