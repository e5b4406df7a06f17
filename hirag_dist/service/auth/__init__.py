"""Callers, tokens, certificates and TLS."""
