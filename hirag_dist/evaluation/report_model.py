"""What a report's page is made of: plain values that `page` draws. All texts are escaped there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hirag_dist.evaluation.metrics.statistics import Interval

Cell = str | int | float | bool | None | Interval


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs."""

    title: str
    paragraphs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Numbers stand right; None is a dash.

    Attributes:
        form: of floats and intervals, as `format` takes it.
        note: a sentence below the title.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    form: str = ".3f"


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars with intervals, side by side; below zero they go to the left of it.

    Attributes:
        series: name → (label, value) of each bar, in order; the same label in several series is one group. NaN is
            drawn as no bar.
        form: of the values, as `format` takes it.
        whole: the largest value there can be, such as 1 for shares; None takes the largest there is.
    """

    title: str
    series: Mapping[str, Sequence[tuple[str, Interval]]]
    note: str = ""
    form: str = ".1%"
    whole: float | None = 1.0


@dataclass(frozen=True, slots=True)
class Lines:
    """Curves over numbers, points joined.

    Attributes:
        series: name → (x, y) of each point, in order.
    """

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    note: str = ""
    form: str = ".3g"


@dataclass(frozen=True, slots=True)
class Matrix:
    """A square of shares, each row against each column, shaded from low to high around the middle.

    Attributes:
        names: of rows and columns.
        cells: names × names; None where there is none, as on the diagonal.
        middle: the value that has no shade, such as 0.5 for win rates.
    """

    title: str
    names: Sequence[str]
    cells: Sequence[Sequence[float | None]]
    note: str = ""
    form: str = ".0%"
    middle: float = 0.5


Section = Text | Table | Bars | Lines | Matrix


@dataclass(frozen=True)
class Findings:
    """What a kind gives at the end.

    Attributes:
        results: JSON, for `report.json`; documented by the kind. Intervals become {value, low, high}.
        sections: of the page, in order.
        headline: tables that the command prints for a person, besides what every kind prints.
        questions: what was read (`Questions.counts`), empty where there was no question file.
    """

    results: Mapping[str, Any]
    sections: Sequence[Section]
    headline: Sequence[Table] = ()
    questions: Mapping[str, int] = field(default_factory=dict)
