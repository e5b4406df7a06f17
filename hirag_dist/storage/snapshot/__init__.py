"""Snapshot manifest, reader, writer, cache, history and garbage collection."""
