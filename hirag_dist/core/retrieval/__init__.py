"""The three retrieval levels (paper Eq. 12-16), source ranking, context and citations."""
