"""Entity vectors in Milvus: Lite, whose file one process owns, or a server. The snapshot can always rebuild them.

The snapshots of a lineage share a collection, in which an alias names each of them. It holds the hash of a row, its
vector, and what searches filter by; names and texts stay in the snapshot.
"""

from hirag_dist.retrieval.vector_index.milvus.collection import collection_name
from hirag_dist.retrieval.vector_index.milvus.connection import server_version
from hirag_dist.retrieval.vector_index.milvus.drop_collections import (
    MilvusCollections,
    lite_collections,
    server_collections,
)
from hirag_dist.retrieval.vector_index.milvus.search import MilvusVectors, open_milvus, open_milvus_lite

__all__ = [
    "MilvusCollections",
    "MilvusVectors",
    "collection_name",
    "lite_collections",
    "open_milvus",
    "open_milvus_lite",
    "server_collections",
    "server_version",
]
