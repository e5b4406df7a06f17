"""File descriptors of a service: the limit of the system, and the connections that it allows."""

from __future__ import annotations

import logging
import resource

from hirag_dist.errors import ConfigError

logger = logging.getLogger(__name__)

RESERVE = 192  # for files, endpoints, threads' wake-ups and a second snapshot during a swap
_MIN_CONNECTIONS = 32
_MAX_RAISED = 65_536


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit, at most to 65,536. Return the limit in force.

    The soft limit is 1,024 on many systems, for programs that use `select`; nothing here does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_RAISED if hard == resource.RLIM_INFINITY else min(hard, _MAX_RAISED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error)
    return descriptor_limit()


def descriptor_limit() -> int:
    """Return the number of file descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_RAISED if soft == resource.RLIM_INFINITY else soft


def allowed_connections(wanted: int, reserved: int = 0) -> int:
    """Return how many connections a port may have: as many as wanted, or as many as the descriptors allow.

    Args:
        wanted: connections.
        reserved: connections of another port of this process.

    Raises:
        ConfigError: the descriptors allow next to none.
    """
    limit = descriptor_limit()
    allowed = limit - RESERVE - reserved
    if allowed < _MIN_CONNECTIONS:
        least = RESERVE + reserved + _MIN_CONNECTIONS
        raise ConfigError(
            f"the limit of open files is {limit}, and the service needs at least {least}; raise it (ulimit -n, "
            f"LimitNOFILE= of systemd)"
        )
    if allowed < wanted:
        logger.warning(
            "the limit of open files is %d: this process accepts %d connections instead of %d; raise it (ulimit -n, "
            "LimitNOFILE= of systemd) or set service.max_connections",
            limit,
            allowed,
            wanted,
        )
    return min(wanted, allowed)
