"""A service on loopback with an engine that does as it is told."""

from tests.service.fixtures import certificates, fakes, start

__all__ = ["certificates", "fakes", "start"]
