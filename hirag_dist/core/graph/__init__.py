"""CSR graphs: Leiden communities, shortest paths, personalised PageRank, metrics."""
