"""What a user does with an index: build, update, remove, retry, measure. Use cases that print nothing."""
