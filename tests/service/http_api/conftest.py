"""A service with a scripted engine and its HTTP server."""

from tests.service.web.conftest import serve, served, shared

__all__ = ["serve", "served", "shared"]
