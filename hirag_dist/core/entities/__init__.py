"""Merging of mentions, summary entities, claims and entity resolution."""
