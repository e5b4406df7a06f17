"""Access labels: patterns, filters and connectivity under a filter."""
