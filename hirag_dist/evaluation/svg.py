"""Charts of a report as SVG text. Colours and fonts come from the page's style sheet, by class."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from hirag_dist.core.text.normalize import shorten
from hirag_dist.evaluation.metrics.statistics import Interval
from hirag_dist.evaluation.report_model import Bars, Lines, Matrix
from hirag_dist.inspection.charts import nice_number, svg

_WIDTH = 720
_NAME = 190  # width of the names of groups
_CHAR = 7.6  # width of a character, on the broad side of what browsers have for letters and capitals mixed
_VALUE = 62  # room for a value behind its bar
_BAR, _GAP, _BETWEEN = 15, 3, 12


def draw_bars(bars: Bars) -> str:
    """Return the bars, groups below each other, with their intervals as lines over them and the value behind."""
    labels = list(dict.fromkeys(label for points in bars.series.values() for label, _ in points))
    values = {name: dict(points) for name, points in bars.series.items()}
    known = [value for points in values.values() for value in points.values() if not math.isnan(value.value)]
    if not known:
        return '<p class="none">Nothing to draw.</p>'
    low = min(0.0, *(value.low for value in known))
    high = max(bars.whole if bars.whole is not None and low >= 0 else 0.0, *(value.high for value in known))
    if high == low:
        high = low + 1.0
    left, right = _NAME + (_VALUE if low < 0 else 8), _WIDTH - _VALUE
    names = list(bars.series)

    def across(value: float) -> float:
        return left + (right - left) * (value - low) / (high - low)

    parts, y = [], 6.0
    if len(names) > 1:
        legend, y = _legend(names)
        parts += legend
    top = y
    rows: list[str] = []
    for label in labels:
        group = [(number, values[name][label]) for number, name in enumerate(names) if label in values[name]]
        middle = y + (len(group) * (_BAR + _GAP) - _GAP) / 2 + 4
        rows.append(
            f'<text class="end" x="{_NAME - 6}" y="{middle:.1f}">{escape(shorten(label, int((_NAME - 6) / _CHAR)))}'
            f"<title>{escape(label)}</title></text>"
        )
        for number, value in group:
            rows.append(_bar(value, number, names[number], label, y, across, bars.form))
            y += _BAR + _GAP
        y += _BETWEEN - _GAP
    for tick in _ticks(low, high):
        x = across(tick)
        kind = "rule zero" if tick == 0 else "rule"
        parts.append(
            f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{y - _BETWEEN + 4:.1f}"/>'
            f'<text class="soft mid" x="{x:.1f}" y="{y + 8:.1f}">{escape(format(tick, _tick_form(bars.form)))}</text>'
        )
    return svg(_WIDTH, round(y + 16), bars.title, [*parts, *rows])


def draw_lines(lines: Lines) -> str:
    """Return the curves with their points."""
    points = [point for curve in lines.series.values() for point in curve]
    if not points:
        return '<p class="none">Nothing to draw.</p>'
    names = list(lines.series)
    parts, top = _legend(names) if len(names) > 1 else ([], 8.0)
    height, left, right = 250 + top, 60, _WIDTH - 16
    bottom = height - 42
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_low, x_high = min(xs), max(xs)
    low, high = min(0.0, *ys), max(ys)
    high = high if high > low else low + 1.0

    def across(x: float) -> float:
        return left + 12 + (right - left - 24) * (x - x_low) / ((x_high - x_low) or 1)

    def up(y: float) -> float:
        return bottom - (bottom - top) * (y - low) / (high - low)

    for tick in _ticks(low, high):
        parts.append(
            f'<line class="rule" x1="{left}" x2="{right}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
            f'<text class="soft end" x="{left - 8}" y="{up(tick) + 4:.1f}">{escape(format(tick, lines.form))}</text>'
        )
    marks = sorted(set(xs))
    for x in marks if len(marks) <= 12 else _ticks(x_low, x_high):
        parts.append(f'<text class="soft mid" x="{across(x):.1f}" y="{bottom + 18:.1f}">{x:g}</text>')
    for number, name in enumerate(names):
        curve = lines.series[name]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve)
        parts.append(f'<polyline class="curve stroke-l{_colour(number)}" points="{path}"/>')
        for x, y in curve:
            said = escape(f"{name}: {format(y, lines.form)} at {x:g}")
            parts.append(
                f'<circle class="fill-l{_colour(number)}" cx="{across(x):.1f}" cy="{up(y):.1f}" r="4">'
                f"<title>{said}</title></circle>"
            )
    parts.append(
        f'<text class="soft mid" x="{(left + right) / 2:.0f}" y="{height - 6:.0f}">{escape(lines.x_label)}</text>'
    )
    parts.append(
        f'<text class="soft" x="4" y="{top - 4 if len(names) == 1 else top - 2:.0f}">{escape(lines.y_label)}</text>'
    )
    return svg(_WIDTH, round(height), lines.title, parts)


def draw_matrix(matrix: Matrix) -> str:
    """Return the square as a table of shaded cells."""
    known = [abs(cell - matrix.middle) for row in matrix.cells for cell in row if cell is not None]
    most = max(known, default=0.0) or 1.0
    heads = "".join(f'<th class="number" scope="col">{escape(name)}</th>' for name in matrix.names)
    rows = []
    for name, cells in zip(matrix.names, matrix.cells, strict=True):
        shown = []
        for cell in cells:
            if cell is None:
                shown.append('<td class="number soft">–</td>')
                continue
            kind = "above" if cell >= matrix.middle else "below"
            share = round(abs(cell - matrix.middle) / most * 55)
            shown.append(f'<td class="number {kind}" style="--share:{share}%">{escape(format(cell, matrix.form))}</td>')
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(shown)}</tr>')
    return f'<div class="scroll"><table class="matrix"><tr><th></th>{heads}</tr>{"".join(rows)}</table></div>'


def _bar(
    value: Interval, number: int, name: str, label: str, y: float, across: Callable[[float], float], form: str
) -> str:
    if math.isnan(value.value):
        return f'<text class="soft" x="{across(0.0) + 4:.1f}" y="{y + 12:.1f}">–</text>'
    shown = format(value.value, form)
    said = escape(f"{label}, {name}: {shown}, {format(value.low, form)} to {format(value.high, form)}")
    start, end = sorted((across(0.0), across(value.value)))
    middle = y + _BAR / 2
    reach = max(across(value.high), end) + 6
    if value.value < 0:
        text = f'<text class="soft end" x="{min(across(value.low), start) - 6:.1f}" y="{middle + 4:.1f}">{shown}</text>'
    else:
        text = f'<text class="soft" x="{reach:.1f}" y="{middle + 4:.1f}">{shown}</text>'
    return (
        f"<g><title>{said}</title>"
        f'<rect class="fill-l{_colour(number)}" x="{start:.1f}" y="{y:.1f}" width="{max(end - start, 0.5):.1f}" '
        f'height="{_BAR}" rx="2"/>'
        f'<path class="whisker" d="M{across(value.low):.1f} {middle:.1f}H{across(value.high):.1f}'
        f'M{across(value.low):.1f} {middle - 4:.1f}v8M{across(value.high):.1f} {middle - 4:.1f}v8"/>{text}</g>'
    )


def _legend(names: Sequence[str]) -> tuple[list[str], float]:
    """Return the names with their colours, in as many lines as they need, and where they end."""
    parts, x, y = [], 4.0, 6.0
    for number, name in enumerate(names):
        shown = shorten(name, 40)
        width = 26 + _CHAR * len(shown)
        if x + width > _WIDTH and x > 4:
            x, y = 4.0, y + 20
        parts.append(
            f'<rect class="fill-l{_colour(number)}" x="{x:.1f}" y="{y:.1f}" width="11" height="11" rx="2"/>'
            f'<text class="soft" x="{x + 16:.1f}" y="{y + 10:.1f}">{escape(shown)}</text>'
        )
        x += width
    return parts, y + 28


def _ticks(low: float, high: float) -> list[float]:
    step = nice_number((high - low) / 5)
    return [round(step * place, 12) for place in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def _tick_form(form: str) -> str:
    return ".0%" if form.endswith("%") else ".3g"


def _colour(number: int) -> int:
    return (5, 2, 1, 3, 4, 6, 7, 0)[number % 8]
