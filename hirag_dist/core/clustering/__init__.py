"""Soft clustering of a layer (paper Eq. 7-8) and the stop rule (Eq. 17)."""
