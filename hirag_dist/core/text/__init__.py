"""Chunking, tokens, normalisation and identifiers."""
