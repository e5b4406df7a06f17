"""A service with a scripted engine and its HTTP server."""

from tests.service.web.conftest import http, serve, served, shared

__all__ = ["http", "serve", "served", "shared"]
