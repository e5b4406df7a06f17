"""The result of an evaluation kind, as data and as sections of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hirag_dist.html import Section, Table


@dataclass(frozen=True)
class Findings:
    """The result of a kind.

    Attributes:
        results: JSON, for `report.json`; documented by the kind. Intervals become {value, low, high}.
        sections: of the page, in order.
        headline: tables that the command prints, in addition to those of every kind.
        questions: counts of the question file (`Questions.counts`), empty where there was none.
    """

    results: Mapping[str, Any]
    sections: Sequence[Section]
    headline: Sequence[Table] = ()
    questions: Mapping[str, int] = field(default_factory=dict)
