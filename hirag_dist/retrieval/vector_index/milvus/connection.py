"""Clients of Milvus, and the translation of its errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from hirag_dist.errors import BackendUnavailable
from hirag_dist.storage.store import Store
from hirag_dist.wire.addresses import proxy_options

TIMEOUT_S = 10.0  # of a search, retries included
INSTALL: Final = "pip install 'hirag-dist[milvus-lite]'"
_CHANNEL = {  # by default gRPC waits up to two minutes before it reconnects
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1000,
}
_LITE_CHANNEL = {  # Lite's server, in this process, disconnects clients that send keepalives
    "grpc.keepalive_time_ms": 2**31 - 1,
    "grpc.keepalive_permit_without_calls": False,
}
_NOISY = ("pymilvus", "milvus_lite", "grpc._server")  # they log a traceback for every refusal


@contextmanager
def translated(what: str, where: str) -> Iterator[None]:
    """Raise a failed call as BackendUnavailable.

    Args:
        what: the purpose of the call, as a verb phrase.
        where: the Milvus, for messages.
    """
    import grpc
    from pymilvus import MilvusException

    try:
        yield
    except MilvusException as error:
        raise BackendUnavailable(f"{where} does not {what}: {error.message}") from error
    except grpc.RpcError as error:
        reason = error.code().name if isinstance(error, grpc.Call) else str(error)
        raise BackendUnavailable(f"{where} does not {what}: {reason}") from error
    except ValueError as error:  # grpc's, of a channel that was closed
        raise BackendUnavailable(f"{where} does not {what}: {error}") from error


def connect(uri: str, token: str, timeout_s: float) -> Any:
    """Return a client of a server.

    Raises:
        BackendUnavailable: no server answers, or it refuses the token.
    """
    from pymilvus import MilvusClient, MilvusException

    _quiet()
    options = _CHANNEL | dict(proxy_options(urlsplit(uri).netloc.rpartition("@")[2]))
    try:
        return MilvusClient(uri, token=token, timeout=timeout_s, grpc_options=options)
    except (MilvusException, ValueError) as error:  # ValueError: of urllib, for a port that is none
        reason = error.message if isinstance(error, MilvusException) else str(error)
        reason = reason.replace(uri, shown(uri))
        raise BackendUnavailable(f"no Milvus answers at {shown(uri)}: {reason}") from error


def shown(uri: str | None) -> str:
    """Return an address for messages: pymilvus takes https://user:password@host, and errors go to callers and logs.

    >>> shown("https://ada:secret@milvus.example:19530/db?secret=1")
    'https://milvus.example:19530/db'
    """
    scheme, mark, rest = (uri or "").rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2].partition('?')[0]}"


def open_lite(store: Store) -> Any:
    """Return a client of the Milvus Lite file of an index; this process owns it until it ends.

    Raises:
        BackendUnavailable: no Milvus Lite here, the index is not on a local folder, or another process owns it.
    """
    root = store.local
    if root is None:
        raise BackendUnavailable("Milvus Lite needs an index on a local folder; use a Milvus server, or memory")
    try:
        import milvus_lite  # noqa: F401
    except ImportError as error:
        raise BackendUnavailable(f"Milvus Lite needs the extra `milvus-lite`: {INSTALL}") from error
    from pymilvus import MilvusClient, MilvusException

    _quiet()
    folder = Path(root) / "milvus"
    try:
        folder.mkdir(exist_ok=True)
        return MilvusClient(str(folder / "milvus.db"), grpc_options=_LITE_CHANNEL)
    except OSError as error:
        raise BackendUnavailable(f"Milvus Lite cannot write to {folder}: {error.strerror}") from error
    except MilvusException as error:
        raise BackendUnavailable(
            f"another process owns the Milvus Lite file of {store.uri}; ask that service with "
            "`query --server`, or set vectors.backend to memory"
        ) from error


def server_version(uri: str, token: str) -> str:
    """Return the version of a Milvus server. Raises BackendUnavailable where none answers."""
    client = connect(uri, token, 10.0)
    try:
        with translated("tell its version", f"Milvus at {shown(uri)}"):
            return f"{client.get_server_version()} at {shown(uri)}"
    finally:
        client.close()


def _quiet() -> None:
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
