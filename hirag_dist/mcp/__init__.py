"""Server of the Model Context Protocol (MCP) for agents: tools over an index or a running service.

`tools` and `run` import the extra `mcp`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import InvalidQuery
from hirag_dist.types import IndexInfo


@dataclass(frozen=True, slots=True)
class Caller:
    """One call of a tool.

    Attributes:
        token: Bearer token of the caller; None takes the token of the connection, if it has one.
        timeout_s: Seconds for the call; None sets no limit.
        index: Name of the index; empty for the default one.
    """

    token: str | None = None
    timeout_s: float | None = None
    index: str = ""


class ServiceBackend:
    """A running service. The token of a call is the caller's, so the service's labels and quotas hold for it."""

    has_names: Final = True  # indexes have names, so there may be several

    def __init__(self, client: AsyncHiragClient) -> None:
        self.client = client

    async def target(self, caller: Caller) -> tuple[Any, dict[str, Any]]:
        """Return the client or index to ask, which have the same methods, and keyword arguments for this caller."""
        options: dict[str, Any] = {"token": caller.token, "timeout_s": caller.timeout_s}
        return self.client, options | ({"index": caller.index} if caller.index else {})

    async def admit(self, caller: Caller) -> None:
        """Check that the service knows a caller.

        Raises:
            Unauthenticated: it does not.
            HiragError: it cannot be asked, or has another reason to refuse the caller.
        """
        await self.client.list_indexes(token=caller.token, timeout_s=caller.timeout_s)

    async def describe(self, caller: Caller) -> IndexInfo:
        """Return the description of the index, as the caller may see it."""
        client, options = await self.target(caller)
        info: IndexInfo = await client.describe(**options)
        return info

    async def close(self) -> None:
        """Close the connection."""
        await self.client.close()


class IndexBackend:
    """An index opened in this process, for the user who started the server: it has no other callers.

    Args:
        opening: Task that opens the index, such as `api.index.AsyncIndex`. Calls wait for it: the first opening on a
            machine compiles for up to a minute, longer than some clients wait for a server to start.
        reach: Labels that the user holds; None: everything is visible.
    """

    has_names: Final = False

    def __init__(self, opening: asyncio.Future[Any], reach: frozenset[str] | None = None) -> None:
        self._opening = opening
        self._reach = reach

    async def target(self, caller: Caller) -> tuple[Any, dict[str, Any]]:
        """Return the client or index to ask, which have the same methods, and keyword arguments for this caller.

        Raises:
            InvalidQuery: the caller names an index.
        """
        if caller.index:
            raise InvalidQuery(f"index: there is no {caller.index!r}; this server has one index, so leave it out")
        async with asyncio.timeout(caller.timeout_s):
            index = await asyncio.shield(self._opening)
        return index, {"reach": self._reach, "timeout_s": caller.timeout_s}

    async def admit(self, caller: Caller) -> None:
        """Admit every caller: there is one."""

    async def describe(self, caller: Caller) -> IndexInfo:
        """Return the description of the index."""
        info: IndexInfo = (await self.target(caller))[0].describe(self._reach)
        return info

    async def close(self) -> None:
        """Release files and connections."""
        if not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if not self._opening.cancelled() and self._opening.exception() is None:
            await self._opening.result().close()


Backend = ServiceBackend | IndexBackend
