"""Exchange with the index formats of other tools."""
