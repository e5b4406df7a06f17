"""Presentations (.pptx): the text of each slide, its tables and charts, and the speaker's notes.

Hidden slides are left out, and so are footers, dates and slide numbers. Diagrams (SmartArt) and pictures give no text.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pptx
from lxml import etree
from pptx.enum.shapes import PP_PLACEHOLDER

from hirag_dist.readers.formulas import lowered_text, raised_text
from hirag_dist.readers.office.placed_text import PlacedText

_FURNITURE = (PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.FOOTER, PP_PLACEHOLDER.SLIDE_NUMBER)
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_MAX_DEPTH = 20  # of groups


def read_slides(data: bytes, max_chars: int) -> PlacedText:
    """Return the text of a presentation."""
    presentation = pptx.Presentation(io.BytesIO(data))
    found = PlacedText(max_chars)
    for number, slide in enumerate(presentation.slides, start=1):
        if slide._element.get("show") in ("0", "false"):
            continue
        _take_choices(slide.element)
        title = slide.shapes.title
        heading = "" if title is None else " ".join(title.text_frame.text.split())
        found.begin("slide", page=number, section=heading)
        found.add(f"## {heading}" if heading else "")
        own_id = None if title is None else title.shape_id
        for shape in _shapes(slide.shapes):
            if shape.shape_id != own_id:
                _add_shape(shape, found)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            notes = slide.notes_slide.notes_text_frame.text.strip()
            found.add(f"Notes: {notes}" if notes else "")
    found.describe(presentation.core_properties.title, presentation.core_properties)
    return found


def _take_choices(slide: etree._Element) -> None:
    """Put the shapes of a later version in place of their alternatives, and mark raised and lowered numbers."""
    for alternatives in list(slide.iter(f"{_MC}AlternateContent")):
        choice = alternatives.find(f"{_MC}Choice")
        for shape in [] if choice is None else list(choice):
            alternatives.addprevious(shape)
        alternatives.getparent().remove(alternatives)
    for run in slide.iter(f"{_A}r"):
        text = run.find(f"{_A}t")
        if text is None:
            continue
        position, before = _position(run), run.getprevious()
        if position == "raised":
            text.text = raised_text(text.text or "")
        elif position == "lowered" and before is not None and before.tag == run.tag and _position(before) != "lowered":
            shown = before.findtext(f"{_A}t", "")
            text.text = lowered_text(text.text or "", after_digit=shown[-1:].isdigit())


def _position(run: etree._Element) -> str:
    """Return raised, lowered or, for text on the line, empty."""
    properties = run.find(f"{_A}rPr")
    offset = "" if properties is None else properties.get("baseline", "").rstrip("0%")
    return "raised" if offset.isdigit() else "lowered" if offset.lstrip("-").isdigit() else ""


def _shapes(shapes: Iterable[Any], depth: int = 0) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            if depth < _MAX_DEPTH:
                yield from _shapes(shape.shapes, depth + 1)
        elif not (shape.is_placeholder and shape.placeholder_format.type in _FURNITURE):
            yield shape


def _add_shape(shape: Any, found: PlacedText) -> None:
    if getattr(shape, "has_table", False):
        rows = [["" if cell.is_spanned else cell.text_frame.text for cell in row.cells] for row in shape.table.rows]
        found.table(rows)
    elif getattr(shape, "has_chart", False):
        with suppress(AttributeError, KeyError, TypeError, NotImplementedError):  # of kinds it does not know
            _add_chart(shape.chart, found)
    elif shape.has_text_frame:
        paragraphs = shape.text_frame.paragraphs
        lines = [f"{'  ' * each.level}{' '.join(each.text.split())}" for each in paragraphs if each.text.strip()]
        found.add("\n".join(lines))


def _add_chart(chart: Any, found: PlacedText) -> None:
    """Add the numbers of a chart as a table; nothing of a kind that has no categories."""
    if chart.has_title and chart.chart_title.has_text_frame:
        found.add(chart.chart_title.text_frame.text)
    for plot in chart.plots:
        series = list(plot.series)
        names = [str(each) for each in plot.categories]
        rows = [["", *(each.name or "" for each in series)]]
        values = [list(each.values) for each in series]
        for at, name in enumerate(names):
            rows.append([name, *("" if at >= len(own) or own[at] is None else f"{own[at]:.15g}" for own in values)])
        found.table(rows)
