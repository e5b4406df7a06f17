"""Self-contained HTML pages: sections of plain values, charts as SVG, and the templates that lay them out."""

from hirag_dist.html.charts import element
from hirag_dist.html.render import render_template
from hirag_dist.html.sections import Bars, Cell, Formatted, Lines, Matrix, Section, Table, Text

__all__ = [
    "Bars",
    "Cell",
    "Formatted",
    "Lines",
    "Matrix",
    "Section",
    "Table",
    "Text",
    "element",
    "render_template",
]
