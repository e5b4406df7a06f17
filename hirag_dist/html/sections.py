"""Sections of a page as plain values. The templates escape all texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hirag_dist.types.statistics import Interval


class Formatted(str):
    """A number that is formatted already; a table aligns it as a number."""

    __slots__ = ()


Cell = str | int | float | bool | None | Interval


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs."""

    title: str
    paragraphs: Sequence[str]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Columns without a text are right-aligned; None is a dash.

    Attributes:
        note: a sentence below the title.
        form: format specification of floats and intervals.
        foot: the last row, such as a total.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    form: str = ".3f"
    foot: Sequence[Cell] | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars, optionally with intervals; negative values extend to the left of zero.

    Attributes:
        series: name → (label, value) of each bar, in order; the same label in several series is one group. NaN is
            drawn as no bar.
        form: format specification of the values.
        whole: the largest possible value, such as 1 for shares; None takes the largest one present.
        width: of the drawing, in its own units; a narrow card takes a narrow drawing.
        log: the scale is logarithmic, from 1; values are counts.
    """

    title: str
    series: Mapping[str, Sequence[tuple[str, Interval | float]]]
    note: str = ""
    form: str = ".1%"
    whole: float | None = 1.0
    width: int = 720
    log: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Curves over numbers, with joined points.

    Attributes:
        series: name → (x, y) of each point, in order.
        form: format specification of the values.
        from_zero: the vertical axis begins at zero, or below it.
        height: of the area between the axes.
        marks: x values on the horizontal axis; the points' by default.
    """

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    note: str = ""
    form: str = ".3g"
    from_zero: bool = True
    width: int = 720
    height: int = 200
    marks: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Matrix:
    """A square of shares, each row against each column, shaded by the distance from the middle.

    Attributes:
        names: of rows and columns.
        cells: names × names; None where there is none, as on the diagonal.
        middle: the value without a shade, such as 0.5 for win rates.
    """

    title: str
    names: Sequence[str]
    cells: Sequence[Sequence[float | None]]
    note: str = ""
    form: str = ".0%"
    middle: float = 0.5


Section = Text | Table | Bars | Lines | Matrix
