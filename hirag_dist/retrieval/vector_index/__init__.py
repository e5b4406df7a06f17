"""Vector search: in memory or in Milvus."""
