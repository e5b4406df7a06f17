"""A chat model that is a function, for tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from hirag_dist.types import ChatReply, ChatRequest, RateLimits


class ScriptedModel:
    """A model whose replies are those of a function; an error that the function raises is the endpoint's.

    Args:
        script: request → reply, or its text.
        name: the model's.
        piece_chars: size of the pieces of a stream, in characters.

    Attributes:
        requests: every request so far, in order.
    """

    rate_limits: RateLimits | None = None

    def __init__(
        self, script: Callable[[ChatRequest], ChatReply | str], name: str = "scripted", piece_chars: int = 16
    ) -> None:
        self.name = name
        self.piece_chars = piece_chars
        self.requests: list[ChatRequest] = []
        self._script = script

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the script's reply."""
        self.requests.append(request)
        reply = self._script(request)
        return ChatReply(reply, model=self.name) if isinstance(reply, str) else reply

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the script's text, a few characters at a time, and then the reply."""
        reply = await self.complete(request)
        text = reply.text
        for start in range(0, len(text), self.piece_chars):
            yield text[start : start + self.piece_chars]
        yield reply

    async def close(self) -> None:
        """Nothing is held."""
