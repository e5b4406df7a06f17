"""Authentication: bearer tokens, client certificates, the callers file, and TLS of the service."""
