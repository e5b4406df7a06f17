"""Stages over the Batch API of an endpoint."""
