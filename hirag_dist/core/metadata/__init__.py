"""Metadata of documents: typed values, filter expressions, and the visibility that follows from a set of documents."""
