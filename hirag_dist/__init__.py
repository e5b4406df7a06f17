"""hirag_dist: distributed retrieval-augmented generation with hierarchical knowledge (HiRAG, arXiv 2503.10150)."""

__version__ = "0.1.0"
