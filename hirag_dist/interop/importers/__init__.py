"""Another tool's working folder → documents, chunks, entities and relations as in `schemas`, all of layer 0."""

from hirag_dist.interop.importers.detect import read_working_folder
from hirag_dist.interop.importers.model import ImportedGraph

__all__ = ["ImportedGraph", "read_working_folder"]
