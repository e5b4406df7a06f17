"""Limits of a listening port's connections: how many one client may hold, and for how long one may stay unused.

Neither gRPC's server nor aiohttp's has a limit for each client, so the sockets of the process are listed and those in
excess are shut down. A flood of new connections is for the network to stop; this stops clients that hoard them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.service.descriptors import descriptor_limit

logger = logging.getLogger(__name__)

Peer = tuple[str, int]  # address and port of the other end

_INTERVAL_S = 0.5
_MAX_CPU_SHARE = 0.05  # of one core, for listing sockets
_LOG_INTERVAL_S = 10.0
_IDLE_GRACE_S = 30.0  # for the server to close an idle connection in its own way, which is gentler
_CROWDED: Final = 0.5  # share of all connections above which unused ones are closed early
_FULL: Final = 0.9  # share of all connections above which the clients with the most connections lose some
_AFTER_FULL: Final = 0.8  # share that is left then
_SOCKETS = "/dev/fd"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of the connections of one port.

    Attributes:
        total: connections.
        per_client: connections of one caller, or of one address as long as no caller has authenticated. IPv6 addresses
            count by their /64 network.
        first_call_s: seconds that a new connection has until its first request while more than half of `total` are
            open. Otherwise `idle_s` applies: a client may connect before it has anything to ask.
        idle_s: seconds for which a connection may stay without a request.
    """

    total: int
    per_client: int
    first_call_s: float
    idle_s: float


@dataclass(slots=True)
class Connection:
    """Use of one connection.

    Attributes:
        since: time when it was first listed.
        used_at: time when its last request began or ended; None before the first.
        calls: requests in progress.
        caller: name of the caller that authenticated last; empty without one.
    """

    since: float
    used_at: float | None = None
    calls: int = 0
    caller: str = ""

    @property
    def active_at(self) -> float:
        """Time of its last sign of use."""
        return self.since if self.used_at is None else self.used_at


def surplus(connections: Mapping[Peer, Connection], limits: ConnectionLimits, now: float) -> dict[Peer, str]:
    """Return the connections to be closed, each with the reason: unused, idle, client or full.

    Of a client with too many, those without a request in progress go first, the longest unused ones before the others.
    """
    closed: dict[Peer, str] = {}
    clients: dict[str, list[Peer]] = {}
    crowded = len(connections) > limits.total * _CROWDED
    for peer, each in connections.items():
        if crowded and not each.calls and each.used_at is None and now - each.since > limits.first_call_s:
            closed[peer] = "unused"
        elif not each.calls and now - each.active_at > limits.idle_s + _IDLE_GRACE_S:
            closed[peer] = "idle"
        else:
            clients.setdefault(f"caller {each.caller}" if each.caller else network_of(peer[0]), []).append(peer)
    for peers in clients.values():
        peers.sort(key=lambda peer: _worth(connections[peer]))
    left = sum(map(len, clients.values()))
    fair, target = limits.per_client, int(limits.total * _AFTER_FULL)
    if left > limits.total * _FULL:
        fair = min(fair, _fair_share([len(peers) for peers in clients.values()], target))
    for peers in clients.values():
        reason = "client" if len(peers) > limits.per_client else "full"
        excess = max(len(peers) - fair, 0)
        closed |= dict.fromkeys(peers[:excess], reason)
        left -= excess
    if left > limits.total * _FULL:  # many clients with one connection each
        rest = [peer for peer in connections if peer not in closed]
        anonymous = [peer for peer in rest if not (connections[peer].calls or connections[peer].caller)]
        anonymous.sort(key=lambda peer: _worth(connections[peer]))
        closed |= dict.fromkeys(anonymous[: left - target], "full")
    return closed


def _worth(each: Connection) -> tuple[bool, bool, float]:
    """Return a key by which the connections that are closed first come first."""
    return each.calls > 0, each.used_at is not None, -each.since if each.calls else each.active_at


def _fair_share(sizes: list[int], target: int) -> int:
    """Return the largest number, at least 1, that each client may keep so that at most `target` are left.

    >>> _fair_share([100, 5, 5], 50)
    40
    """
    low, high = 1, max([1, *sizes])
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, middle) for size in sizes) <= target:
            low = middle
        else:
            high = middle - 1
    return low


def network_of(address: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address: one client usually has all of it.

    >>> network_of("10.0.0.7"), network_of("2001:db8::1")
    ('10.0.0.7', '2001:db8::/64')
    """
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address, 64), strict=False))


def peer_of(text: str) -> Peer | None:
    """Return the peer that gRPC names, None for one without address and port.

    >>> peer_of("ipv4:10.0.0.7:4711"), peer_of("ipv6:%5B::1%5D:4711"), peer_of("unix:")
    (('10.0.0.7', 4711), ('::1', 4711), None)
    """
    scheme, _, rest = unquote(text).partition(":")
    host, _, port = rest.rpartition(":")
    if scheme not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return address_of(host.removeprefix("[").removesuffix("]")), int(port)


def address_of(host: str) -> str:
    """Return an address without its zone; an IPv4 address that is mapped into IPv6 as IPv4.

    >>> address_of("::ffff:10.0.0.7"), address_of("fe80::1%eth0")
    ('10.0.0.7', 'fe80::1')
    """
    host = host.partition("%")[0]
    return host[7:] if host.startswith("::ffff:") and "." in host else host


@dataclass(slots=True)
class _Log:
    """Connections that were closed since the last log line, by reason and network."""

    closed: Counter[tuple[str, str]] = field(default_factory=Counter)
    at: float = -_LOG_INTERVAL_S


class ConnectionGuard:
    """Keeps the connections of one port within limits. `watch` does the work; requests are reported to `call`.

    Args:
        limits: of the connections.
        on_closed: called with a reason and a number of connections that were closed for it.
        clock: seconds.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        on_closed: Callable[[str, int], None] = lambda reason, count: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._on_closed = on_closed
        self._clock = clock
        self._lock = threading.Lock()
        self._connections: dict[Peer, Connection] = {}
        self._log = _Log()
        self._busy_s = 0.0  # CPU time of the last sweep

    @property
    def count(self) -> int:
        """Number of connections at the last sweep, and of those that have sent a request since."""
        return len(self._connections)

    @contextmanager
    def call(self, peer: Peer | None) -> Iterator[Callable[[str], None]]:
        """Count a request of a connection while the block lasts. Yield a function that takes the caller's name."""
        if peer is None:
            yield lambda caller: None
            return
        with self._lock:
            each = self._connections.setdefault(peer, Connection(self._clock()))
            each.calls += 1
            each.used_at = self._clock()

        def authenticated(caller: str) -> None:
            each.caller = caller

        try:
            yield authenticated
        finally:
            with self._lock:
                each.calls -= 1
                each.used_at = self._clock()

    async def watch(self, port: int) -> None:
        """Sweep until cancelled.

        Args:
            port: of this process, that the connections came in at.
        """
        while True:
            await asyncio.to_thread(self.sweep, port)
            await asyncio.sleep(max(_INTERVAL_S, self._busy_s / _MAX_CPU_SHARE))

    def sweep(self, port: int) -> dict[Peer, str]:
        """List the connections of a port and close those in excess. Return these."""
        began = time.thread_time()
        open_now = {peer for _, peer in _sockets(port)}
        with self._lock:
            now = self._clock()
            gone = [peer for peer, each in self._connections.items() if peer not in open_now and not each.calls]
            for peer in gone:
                del self._connections[peer]
            for peer in open_now:
                self._connections.setdefault(peer, Connection(now))
            closed = surplus(self._connections, self._limits, now)
        if closed:
            self._close(port, closed)
        self._busy_s = time.thread_time() - began
        return closed

    def _close(self, port: int, closed: Mapping[Peer, str]) -> None:
        done: Counter[str] = Counter()
        with _Duplicate() as duplicate:
            for descriptor, peer in _sockets(port):
                if peer in closed and duplicate.shut_down(descriptor, port, peer):
                    done[closed[peer]] += 1
                    self._log.closed[closed[peer], network_of(peer[0])] += 1
        for reason, count in done.items():
            self._on_closed(reason, count)
        now = self._clock()
        if now - self._log.at >= _LOG_INTERVAL_S:
            for (reason, network), count in self._log.closed.most_common(5):
                logger.warning("closed %s of %s: %s", count_noun(count, "connection"), network, _REASONS[reason])
            self._log = _Log(at=now)


_REASONS = {
    "unused": "no request came in time",
    "idle": "no request for too long",
    "client": "more than one client may have",
    "full": "nearly as many are open as the port may have",
}


class _Duplicate:
    """A descriptor that other sockets are copied to. It is reserved, since there may be no free one when it counts.

    A socket that is shut down through a copy is the one whose peer was examined: its own descriptor may be closed and
    given to another socket at any time.
    """

    def __enter__(self) -> _Duplicate:
        try:
            self._reserved = os.open(os.devnull, os.O_RDONLY)
        except OSError:  # no descriptor is free; the sockets themselves are used
            self._reserved = -1
        return self

    def __exit__(self, *error: object) -> None:
        if self._reserved >= 0:
            os.close(self._reserved)

    def shut_down(self, descriptor: int, port: int, peer: Peer) -> bool:
        """Shut down a socket, if it still is the connection of that peer."""
        try:
            if self._reserved >= 0:
                descriptor = os.dup2(descriptor, self._reserved, inheritable=False)
            if _peer_at(descriptor, port) != peer:
                return False
            connection = _borrowed(descriptor)
            try:
                connection.shutdown(socket.SHUT_RDWR)
            finally:
                connection.detach()
        except OSError:  # closed meanwhile
            return False
        return True


def _sockets(port: int) -> Iterator[tuple[int, Peer]]:
    """Yield descriptor and peer of the connections of this process that came in at a port."""
    try:
        descriptors: list[int] | range = [int(entry.name) for entry in Path(_SOCKETS).iterdir()]
    except OSError:  # no descriptor is free to list them: all are in use
        descriptors = range(descriptor_limit())
    for descriptor in descriptors:
        peer = _peer_at(descriptor, port)
        if peer is not None:
            yield descriptor, peer


def _peer_at(descriptor: int, port: int) -> Peer | None:
    """Return the peer of a descriptor, None if it is no connection that came in at the port."""
    try:
        connection = _borrowed(descriptor)
    except OSError:
        return None
    try:
        own = connection.getsockname()
        if not isinstance(own, tuple) or len(own) < 2 or own[1] != port:
            return None
        host, peer_port = connection.getpeername()[:2]
        return address_of(host), peer_port
    except OSError:  # no socket, or one that listens
        return None
    finally:
        connection.detach()


def _borrowed(descriptor: int) -> socket.socket:
    """Return a socket object for a descriptor that it does not own: `detach` it.

    The family only says how long an address may be; which one it is the address itself says.
    """
    return socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=descriptor)
