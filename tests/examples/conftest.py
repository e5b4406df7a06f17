"""A service on loopback with a scripted engine."""

from tests.service.fixtures import certificates, fakes, start

__all__ = ["certificates", "fakes", "start"]
