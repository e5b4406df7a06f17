"""Memory-mapped files that queries read, derived from the snapshot tables."""
