"""Metadata of documents in the snapshot: serving files, and views of an index by filter expressions."""
