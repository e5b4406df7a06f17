"""Templates → pages. Every value is escaped unless it is `Markup`."""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hirag_dist.core.text.normalize import count_noun, shorten
from hirag_dist.html import charts
from hirag_dist.html.sections import Bars, Cell, Formatted, Lines, Section, Table
from hirag_dist.types.statistics import Interval

_CELL_CHARS = 2000


def render_template(package: str, name: str, **values: Any) -> str:
    """Return a page.

    Args:
        package: the folder of the template as a dotted name; templates of this package can be extended and included.
        name: of the template.
        values: what the template uses.
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
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False,
        "separators": (",", ":"),
        "allow_nan": False,
    }
    environment.filters |= {"drawing": _drawing, "text_columns": _text_columns, "count_noun": count_noun}
    environment.globals["source"] = lambda name: Markup(_source(packages, name))
    environment.globals["format_cell"] = _format_cell
    return environment


def _source(packages: list[str], name: str) -> str:
    """Return a file of one of the packages as it is."""
    found = next(file for package in packages if (file := files(package).joinpath(name)).is_file())
    return found.read_text(encoding="utf-8")


def _drawing(section: Section) -> Markup | None:
    """Return the SVG of a chart; None for a section of another kind."""
    if isinstance(section, Bars):
        return charts.draw_bars(section)
    return charts.draw_lines(section) if isinstance(section, Lines) else None


def _text_columns(table: Table) -> set[int]:
    """Return the places of the columns with a text; an empty table has no others."""
    places = range(len(table.columns))
    return {place for place in places if not table.rows or any(_is_text(row[place]) for row in table.rows)}


def _is_text(cell: Cell) -> bool:
    return isinstance(cell, str) and not isinstance(cell, Formatted)


def _format_cell(cell: Cell, form: str) -> Markup | str:
    """Return the content of a cell of a table, or of a matrix."""
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
    return charts.element("span", shorten(cell, _CELL_CHARS), dir="auto")
