"""A service on loopback with a scripted engine."""

from tests.service.fixtures import certificates, start

__all__ = ["certificates", "start"]
