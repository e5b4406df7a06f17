"""Contents of an index: in numbers (`inspect_tables`) and as a page (`outline`, `render_page`)."""

from hirag_dist.inspection.model import Inspection
from hirag_dist.inspection.page import outline, render_page
from hirag_dist.inspection.summary import inspect_tables

__all__ = ["Inspection", "inspect_tables", "outline", "render_page"]
