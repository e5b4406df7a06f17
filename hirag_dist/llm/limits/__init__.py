"""Rate limits and spending limits of endpoints, shared by all workers."""
