"""Services of stages that call no model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hirag_dist.llm.call import CallContext


@dataclass(frozen=True)
class BareServices:
    """Equal whatever task they serve."""

    context: CallContext | None = field(default=None, compare=False)

    def for_task(self, context: CallContext) -> BareServices:
        return replace(self, context=context)

    async def catch_up(self) -> None:
        """There are no other workers' replies."""

    async def is_superseded(self, context: CallContext) -> bool:
        """No call stores a reply."""
        return False

    async def close(self) -> None:
        """There is nothing to close."""


SERVICES: Any = BareServices()
