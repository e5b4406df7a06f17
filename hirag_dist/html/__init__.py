"""Self-contained HTML pages of sections, tables and charts. Every value is escaped unless it is `Markup`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hirag_dist.core.text.normalize import count_noun, shorten
from hirag_dist.types.index_info import Interval


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
        width: Width of the drawing, in its own units; a narrow card takes a narrow drawing.
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


Section = Text | Table | Bars | Lines


_CHAR = 7.6  # upper estimate of the width of a character
_NAME = 190  # maximum width of the labels of bars
_VALUE = 62  # width of a value after its bar
_BAR, _GAP, _BETWEEN = 15, 3, 12
_COLOURS = (5, 2, 1, 3, 4, 6, 7, 0)
_EMPTY = Markup('<p class="none">Nothing to draw.</p>')


def element(tag: str, *content: str, **attributes: object) -> Markup:
    """Return an element with its texts and attribute values escaped; floats are written with one decimal.

    >>> element("text", "a & b", class_="soft", data_x=1.25)
    Markup('<text class="soft" data-x="1.2">a &amp; b</text>')
    """
    pairs = Markup().join(
        Markup(' {}="{}"').format(
            name.rstrip("_").replace("_", "-"), f"{value:.1f}" if isinstance(value, float) else value
        )
        for name, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(tag, pairs, Markup().join(content))


def draw_bars(bars: Bars) -> Markup:
    """Draw groups of bars below each other, with a line over each interval and the value after each bar."""
    values = {
        name: {
            label: value if isinstance(value, Interval) else Interval(value, value, value) for label, value in points
        }
        for name, points in bars.series.items()
    }
    labels = list(dict.fromkeys(label for points in values.values() for label in points))
    known = [value for points in values.values() for value in points.values() if not math.isnan(value.value)]
    if not known:
        return _EMPTY
    low = min(0.0, *(value.low for value in known))
    high = max(bars.whole if bars.whole is not None and low >= 0 else 0.0, *(value.high for value in known))
    high = high if high > low else low + 1.0
    ticks = _decades(high) if bars.log else _ticks(low, high)
    low, high = ticks[0], ticks[-1]
    room = min(_NAME, 14 + _CHAR * max(map(len, labels)))
    x = _scale(low, high, room + (_VALUE if low < 0 else 8), bars.width - _VALUE, bars.log)
    parts, top = _legend(list(values), bars.width)
    rows, y = [], top
    for label in labels:
        group = [(at, name, values[name][label]) for at, name in enumerate(values) if label in values[name]]
        middle = y + (len(group) * (_BAR + _GAP) - _GAP) / 2 + 4
        shown = shorten(label, int((room - 6) / _CHAR))
        rows.append(element("text", shown, element("title", label), class_="end", x=room - 6.0, y=middle))
        for at, name, value in group:
            rows.append(_bar(value, at, f"{label}, {name}" if name else label, y, x, bars.form))
            y += _BAR + _GAP
        y += _BETWEEN - _GAP
    share = ".0%" if ticks[1] - ticks[0] >= 0.01 else ".1%"
    for tick in ticks:
        text = format(tick, share) if bars.form.endswith("%") else short_number(tick)
        kind = "rule" if tick else "rule zero"
        parts.append(element("line", class_=kind, x1=x(tick), x2=x(tick), y1=top, y2=y - _BETWEEN + 4))
        parts.append(element("text", text, class_="soft mid", x=x(tick), y=y + 8))
    return _svg(bars.width, y + 16, bars.title, [*parts, *rows])


def _bar(value: Interval, colour: int, name: str, y: float, x: Callable[[float], float], form: str) -> Markup:
    if math.isnan(value.value):
        return element("text", "–", class_="soft", x=x(0.0) + 4, y=y + 12)
    shown = format(value.value, form)
    start, end = sorted((x(0.0), x(value.value)))
    low, high, middle = x(value.low), x(value.high), y + _BAR / 2
    title = f"{name}: {shown}"
    parts = [_rect(colour, start, y, max(end - start, 0.5), _BAR)]
    if value.high > value.low:
        title += f", {format(value.low, form)} to {format(value.high, form)}"
        whisker = f"M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 4:.1f}v8M{high:.1f} {middle - 4:.1f}v8"
        parts.append(element("path", class_="whisker", d=whisker))
    left = value.value < 0
    at = min(low, start) - 6 if left else max(high, end) + 6
    parts.append(element("text", shown, class_="soft end" if left else "soft", x=at, y=middle + 4))
    return element("g", element("title", title), *parts)


def draw_lines(lines: Lines) -> Markup:
    """Draw curves with their points."""
    points = [point for curve in lines.series.values() for point in curve]
    if not points:
        return _EMPTY
    parts, top = _legend(list(lines.series), lines.width)
    top += 14
    left, right, bottom = 60.0, lines.width - 16.0, top + lines.height
    xs, ys = [*(x for x, _ in points), *lines.marks], [y for _, y in points]
    low, high = min(ys), max(ys)
    low = min(0.0, low) if lines.from_zero else low - (high - low or 1.0) * 0.1
    ticks, marks = _ticks(low, high), sorted(set(xs))
    if len(marks) > 12:
        marks = _ticks(marks[0], marks[-1])
    across, up = _scale(marks[0], marks[-1], left + 12, right - 12), _scale(ticks[0], ticks[-1], bottom, top)
    for tick in ticks:
        parts.append(element("line", class_="rule", x1=left, x2=right, y1=up(tick), y2=up(tick)))
        parts.append(element("text", format(tick, lines.form), class_="soft end", x=left - 8, y=up(tick) + 4))
    for x in marks:
        parts.append(element("text", f"{x:g}", class_="soft mid", x=across(x), y=bottom + 18))
    for at, (name, curve) in enumerate(lines.series.items()):
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve)
        parts.append(element("polyline", class_=f"curve stroke-l{_colour(at)}", points=path))
        for x, y in curve:
            title = element("title", f"{name}: {format(y, lines.form)} at {x:g}")
            parts.append(element("circle", title, class_=f"fill-l{_colour(at)}", cx=across(x), cy=up(y), r=4))
    parts.append(element("text", lines.x_label, class_="soft mid", x=(left + right) / 2, y=bottom + 36))
    parts.append(element("text", lines.y_label, class_="soft", x=4, y=top - 10))
    return _svg(lines.width, bottom + 42, lines.title, parts)


def short_number(number: float) -> str:
    """Return a number in few characters.

    >>> short_number(2.5), short_number(31), short_number(1023), short_number(10_000)
    ('2.5', '31', '1023', '10k')
    """
    if number >= 10_000:
        return f"{number / 1000:.3g}k" if number < 1e6 else f"{number / 1e6:.3g}M"
    return f"{number:g}"


def _svg(width: int, height: float, label: str, parts: Iterable[Markup]) -> Markup:
    return element("svg", *parts, viewBox=f"0 0 {width} {height:.0f}", role="img", aria_label=label)


def _rect(colour: int, x: float, y: float, width: float, height: float) -> Markup:
    return element("rect", class_=f"fill-l{_colour(colour)}", x=x, y=y, width=width, height=height, rx=2)


def _legend(names: Sequence[str], width: int) -> tuple[list[Markup], float]:
    """Return the names with their colours, in as many lines as they need, and the y below them; none for one name."""
    parts: list[Markup] = []
    if len(names) < 2:
        return parts, 6.0
    x, y = 4.0, 6.0
    for at, name in enumerate(names):
        shown = shorten(name, 40)
        needed = 26 + _CHAR * len(shown)
        if x + needed > width and x > 4:
            x, y = 4.0, y + 20
        parts += [_rect(at, x, y, 11, 11), element("text", shown, class_="soft", x=x + 16, y=y + 10)]
        x += needed
    return parts, y + 28


def _scale(low: float, high: float, start: float, end: float, log: bool = False) -> Callable[[float], float]:
    """Return the map of [low, high] to [start, end], linear or, from 0, by the logarithm of 1 + value."""
    if log:
        return lambda value: start + (end - start) * math.log1p(value) / math.log1p(high)
    return lambda value: start + (end - start) * (value - low) / ((high - low) or 1)


def _ticks(low: float, high: float) -> list[float]:
    """Return about six round values from `low` or below it to `high` or above it, evenly spaced.

    >>> _ticks(0.0, 2.3), _ticks(-3.0, 41.0)
    ([0.0, 0.5, 1.0, 1.5, 2.0, 2.5], [-10.0, 0.0, 10.0, 20.0, 30.0, 40.0, 50.0])
    """
    rough = (high - low) / 5 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 4, 5, 8, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * place, 12) for place in range(first, max(last, first + 1) + 1)]


def _decades(high: float) -> list[float]:
    """Return 0, the powers of ten below `high`, and the first of 1, 2 or 5 times a power of ten that reaches it.

    >>> _decades(237.0), _decades(1.0)
    ([0.0, 1.0, 10.0, 100.0, 500.0], [0.0, 1.0])
    """
    power = 10.0 ** math.floor(math.log10(max(high, 1.0)))
    top = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= high)
    below = range(round(math.log10(power)) + (top > power))
    return [0.0, *(10.0**exponent for exponent in below), top]


def _colour(number: int) -> int:
    return _COLOURS[number % len(_COLOURS)]


_CELL_CHARS = 2000


def render_template(package: str, name: str, **values: Any) -> str:
    """Return a page.

    Args:
        package: the folder of the template as a dotted name; templates of this package can be extended and included.
    """
    return _environment(package).get_template(name).render(**values)


@cache
def _environment(package: str) -> Environment:
    packages = [package, __package__]
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(each, "") for each in packages]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}

    def source(name: str) -> Markup:
        """Return a file of one of the packages as it is."""
        found = next(file for package in packages if (file := files(package).joinpath(name)).is_file())
        return Markup(found.read_text(encoding="utf-8"))

    environment.filters |= {"drawing": _drawing, "text_columns": _text_columns, "count_noun": count_noun}
    environment.globals |= {"source": source, "format_cell": _format_cell}
    return environment


def _drawing(section: Section) -> Markup | None:
    """Return the SVG of a chart; None for a section of another kind."""
    if isinstance(section, Bars):
        return draw_bars(section)
    return draw_lines(section) if isinstance(section, Lines) else None


def _text_columns(table: Table) -> set[int]:
    """Return the places of the columns with a text; an empty table has no others."""
    return {
        place
        for place in range(len(table.columns))
        if not table.rows
        or any(isinstance(row[place], str) and not isinstance(row[place], Formatted) for row in table.rows)
    }


def _format_cell(cell: Cell, form: str) -> Markup | str:
    """Return the content of a cell of a table."""
    if isinstance(cell, Interval):
        if math.isnan(cell.value):
            return "–"
        value, low, high = (format(each, form) for each in (cell.value, cell.low, cell.high))
        return Markup("{} <small>[{}, {}]</small>").format(value, low, high)
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return format(cell, form)
    if isinstance(cell, Formatted | Markup):
        return cell
    return element("span", shorten(cell, _CELL_CHARS), dir="auto")
