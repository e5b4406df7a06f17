"""Another tool's working folder → documents, chunks, entities and relations as in `schemas`, all of layer 0."""

from hirag_dist.importing.folder import read_working_folder
from hirag_dist.importing.graph import ImportedGraph

__all__ = ["ImportedGraph", "read_working_folder"]
