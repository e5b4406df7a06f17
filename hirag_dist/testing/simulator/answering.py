"""Requests read and answered, apart from how the endpoint behaves; what was answered before costs no work again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import RequestRejected
from hirag_dist.protocols import Embedder
from hirag_dist.testing.simulator import openai_schema
from hirag_dist.testing.simulator.openai_schema import ApiError, ChatCall
from hirag_dist.types import ChatReply, Message

Reply = Callable[[Sequence[Message], str | None], str]
Structured = Callable[[Sequence[Message], Mapping[str, Any]], str]

_MESSAGE_TOKENS, _REPLY_TOKENS = 4, 3  # what OpenAI's chat template adds to a message, and to a call
_KNOWN = 2048  # instructions come again with every call, a unit's text with its gleaning and its retries


@dataclass(slots=True)
class AnsweredPrompt:
    """A chat request read, its size, and its reply where it was asked before."""

    call: ChatCall
    input_tokens: int
    reply: ChatReply | None = None


@dataclass(slots=True)
class AnsweredEmbedding:
    """An embedding request: its cost, and the reply's body where it was asked before."""

    call: openai_schema.EmbeddingCall
    input_tokens: int
    body: bytes | None = None


class Answers:
    """Answers from the messages alone: the same request has the same reply.

    Args:
        reply: messages and form → the reply's text.
        embedder: of embedding requests.
        structured: messages and a foreign schema → the reply's text; None replies with the smallest value that fits.
    """

    def __init__(self, reply: Reply, embedder: Embedder, structured: Structured | None = None) -> None:
        self._reply = reply
        self._structured = structured or _smallest
        self._embedder = embedder
        self._count = lru_cache(4 * _KNOWN)(counter("o200k_base"))
        self.prompt = lru_cache(_KNOWN)(self._prompt)
        self.embedding = lru_cache(_KNOWN)(self._embedding)

    def _prompt(self, raw: bytes) -> AnsweredPrompt:
        """Return the chat request in a body. Raises ApiError 400."""
        call = openai_schema.read_chat(raw)
        n_tokens = sum(self._count(each.content) + _MESSAGE_TOKENS for each in call.messages)
        return AnsweredPrompt(call, n_tokens + _REPLY_TOKENS)

    def answer(self, prompt: AnsweredPrompt) -> ChatReply:
        """Return the reply. Raises ApiError 400 for what the model cannot do."""
        if prompt.reply is None:
            reply = ChatReply(self._text(prompt.call), model=prompt.call.model, input_tokens=prompt.input_tokens)
            prompt.reply = self.resized(reply)
        return prompt.reply

    def resized(self, reply: ChatReply) -> ChatReply:
        """Return a reply with the tokens of its text."""
        return replace(reply, output_tokens=self._count(reply.text))

    def _embedding(self, raw: bytes) -> AnsweredEmbedding:
        """Return the embedding request in a body. Raises ApiError 400."""
        call = openai_schema.read_embedding(raw)
        return AnsweredEmbedding(call, sum(map(self._count, call.texts)))

    async def embed(self, asked: AnsweredEmbedding) -> bytes:
        """Return the body of the reply."""
        if asked.body is None:
            vectors = await self._embedder.embed(asked.call.texts)
            asked.body = openai_schema.dump(openai_schema.embedding_body(asked.call, vectors, asked.input_tokens))
        return asked.body

    def _text(self, call: ChatCall) -> str:
        try:
            if call.schema is not None:
                return self._structured(call.messages, call.schema)
            return self._reply(call.messages, call.form)
        except RequestRejected as error:
            raise ApiError(400, str(error), "model_cannot") from error


def _smallest(messages: Sequence[Message], schema: Mapping[str, Any]) -> str:
    return openai_schema.dump(openai_schema.instance_of(schema)).decode()


def digest(raw: bytes) -> bytes:
    """Return the 16-byte hash by which a request is remembered."""
    return hashlib.sha256(raw).digest()[:16]
