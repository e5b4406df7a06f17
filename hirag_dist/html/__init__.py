"""Self-contained HTML pages: sections of plain values, charts as SVG, and the templates that lay them out."""

from hirag_dist.html.render import Bars, Cell, Formatted, Lines, Section, Table, Text, element, render_template

__all__ = [
    "Bars",
    "Cell",
    "Formatted",
    "Lines",
    "Section",
    "Table",
    "Text",
    "element",
    "render_template",
]
