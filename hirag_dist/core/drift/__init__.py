"""Drift of an updated index: agreement of partitions, compactness of clusters, stale texts, and gates."""
