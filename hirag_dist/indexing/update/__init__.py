"""Updates of an index: a base snapshot and a change of its documents → the next snapshot, for what the change costs."""
