"""An index in the forms that other tools read: GraphML, and Microsoft GraphRAG's tables."""

from hirag_dist.interop.exporters.graphml import write_graphml
from hirag_dist.interop.exporters.graphrag import graphrag_tables

__all__ = ["graphrag_tables", "write_graphml"]
