"""Bearer tokens: who may call."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import grpc

from hirag_dist.errors import ConfigError
from hirag_dist.service.access import Access, Context
from hirag_dist.service.status import Unauthenticated, message_of, status_of, trailers_of

CALLER: ContextVar[str] = ContextVar("hirag_dist_caller", default="")

_HEALTH = "/grpc.health.v1.Health/"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def read_tokens(path: str | Path) -> Mapping[str, bytes]:
    """Return name → SHA-256 digest of the token, from lines "name:sha256-hex"; blank lines and # lines are skipped.

    Raises:
        ConfigError: the file cannot be read, a line is malformed, a name stands twice, or there is no token in it.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the tokens file {path} cannot be read: {error}") from error
    tokens: dict[str, bytes] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, digest = (part.strip() for part in line.partition(":"))
        if not name or not _DIGEST.fullmatch(digest.lower()):
            raise ConfigError(f"{path}, line {number}: a line must be name:sha256-hex-of-the-token")
        if name in tokens:
            raise ConfigError(f"{path}, line {number}: the name {name} stands twice")
        tokens[name] = bytes.fromhex(digest)
    if not tokens:
        raise ConfigError(f"the tokens file {path} holds no token")
    return tokens


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Turns away calls without a known bearer token, except health checks.

    Args:
        tokens: as `read_tokens` gives them.
    """

    def __init__(self, tokens: Mapping[str, bytes]) -> None:
        self._tokens = tokens

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Pass the call on, or answer it with UNAUTHENTICATED."""
        method = handler_call_details.method
        if method.startswith(_HEALTH):
            return await continuation(handler_call_details)
        caller = self.caller(handler_call_details.invocation_metadata)
        if caller is None:
            return grpc.stream_stream_rpc_method_handler(_deny(method))
        CALLER.set(caller)
        return await continuation(handler_call_details)

    def caller(self, metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
        """Return whose token the metadata brings, or None. The time taken does not depend on the token."""
        given = next((value for key, value in metadata if key == "authorization"), "")
        scheme, _, token = (given if isinstance(given, str) else "").partition(" ")
        digest = hashlib.sha256(token.strip().encode()).digest()
        found = [name for name, known in self._tokens.items() if hmac.compare_digest(known, digest)]
        return found[0] if found and scheme.lower() == "bearer" else None


def _deny(method: str) -> Callable[[Any, Context], Awaitable[None]]:
    async def deny(_requests: Any, context: Context) -> None:
        error = Unauthenticated("this service needs a bearer token that it knows; give one as `token`")
        access = Access.of(method.rpartition("/")[2], context)
        access.code = status_of(error).name
        access.write()
        await context.abort(status_of(error), message_of(error), trailers_of(error, access.request_id, None))

    return deny
