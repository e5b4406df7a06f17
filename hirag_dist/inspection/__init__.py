"""Contents of an index: in numbers (`inspect_tables`) and as a page (`graph_view`, `render_page`)."""

from hirag_dist.inspection.graph_view import GraphView, graph_view
from hirag_dist.inspection.model import Inspection
from hirag_dist.inspection.page import render_page
from hirag_dist.inspection.passages import choose_passages
from hirag_dist.inspection.summary import inspect_tables

__all__ = ["GraphView", "Inspection", "choose_passages", "graph_view", "inspect_tables", "render_page"]
