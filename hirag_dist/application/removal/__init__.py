"""Proof that nothing derives from removed documents, and the removal of what still does."""
