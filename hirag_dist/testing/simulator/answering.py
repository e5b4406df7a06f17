"""Requests read and answered, apart from how the endpoint behaves; what was answered before costs no work again."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hirag_dist.core.text.tokens import encoding
from hirag_dist.errors import RequestRejected
from hirag_dist.protocols import Embedder
from hirag_dist.testing.simulator import openai_schema
from hirag_dist.testing.simulator.openai_schema import ApiError, ChatCall
from hirag_dist.types import ChatReply, Message

Reply = Callable[[Sequence[Message], str | None], str]
Structured = Callable[[Sequence[Message], Mapping[str, Any]], str]

_MESSAGE_TOKENS, _REPLY_TOKENS = 4, 3  # what OpenAI's chat template adds to a message, and to a call
_ROLE_TOKENS = {
    role: array("I", [2**32 - 1 - at] * _MESSAGE_TOKENS).tobytes()
    for at, role in enumerate(("system", "user", "assistant"))
}
_KNOWN = 2048  # instructions come again with every call, a unit's text with its gleaning and its retries


@dataclass(slots=True)
class AnsweredPrompt:
    """A chat request read.

    Attributes:
        origin: hash of the conversation up to its first question: a request that is asked again with what was wrong
            has another body, and the same origin.
        prefixes: of the prompt cache.
        text: the model's reply, where it was asked before; `output_tokens` with it.
    """

    call: ChatCall
    origin: bytes
    input_tokens: int
    prefixes: tuple[bytes, ...]
    text: str | None = None
    output_tokens: int = 0


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
        prompt_cache: whether prefixes count as cached when they come again.
        structured: messages and a foreign schema → the reply's text; None replies with the smallest value that fits.
    """

    def __init__(
        self,
        reply: Reply,
        embedder: Embedder,
        prompt_cache: bool = True,
        structured: Structured | None = None,
    ) -> None:
        self._reply = reply
        self._structured = structured or _smallest
        self._embedder = embedder
        encoder = encoding("o200k_base").encode_ordinary
        self._tokens = lru_cache(_KNOWN)(lambda text: array("I", encoder(text)).tobytes())
        self._count = lru_cache(4 * _KNOWN)(lambda text: len(encoder(text)))
        self._cache = PromptCache() if prompt_cache else None
        self.prompt = lru_cache(_KNOWN)(self._prompt)
        self.embedding = lru_cache(_KNOWN)(self._embedding)

    def _prompt(self, raw: bytes) -> AnsweredPrompt:
        """Return the chat request in a body. Raises ApiError 400."""
        call = openai_schema.read_chat(openai_schema.read_object(raw))
        stream = b"".join(
            part for each in call.messages for part in (_ROLE_TOKENS[each.role], self._tokens(each.content))
        )
        prefixes = prefixes_of(f"{call.model}/{call.form}", stream) if self._cache else ()
        return AnsweredPrompt(call, _origin(call), len(stream) // TOKEN_BYTES + _REPLY_TOKENS, prefixes)

    def answer(self, prompt: AnsweredPrompt) -> ChatReply:
        """Return the reply. Raises ApiError 400 for what the model cannot do."""
        if prompt.text is None:
            prompt.text = self._text(prompt.call)
            prompt.output_tokens = self._size(prompt.text)
        return ChatReply(
            text=prompt.text,
            model=prompt.call.model,
            input_tokens=prompt.input_tokens,
            cached_tokens=self._cache.take(prompt.prefixes) if self._cache else 0,
            output_tokens=prompt.output_tokens,
        )

    def resized(self, reply: ChatReply) -> ChatReply:
        """Return a reply whose text was changed, with the tokens of that text."""
        return replace(reply, output_tokens=self._size(reply.text))

    def _embedding(self, raw: bytes) -> AnsweredEmbedding:
        """Return the embedding request in a body. Raises ApiError 400."""
        call = openai_schema.read_embedding(openai_schema.read_object(raw))
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

    def _size(self, text: str) -> int:
        return len(self._tokens(text)) // TOKEN_BYTES


def _smallest(messages: Sequence[Message], schema: Mapping[str, Any]) -> str:
    return openai_schema.dump(openai_schema.instance_of(schema)).decode()


def _origin(call: ChatCall) -> bytes:
    parts = [call.model]
    for message in call.messages:
        parts.append(message.content)
        if message.role == "user":
            break
    return digest("\0".join(parts).encode("utf-8", "surrogatepass"))


MIN_TOKENS, STEP_TOKENS = 1024, 128
TOKEN_BYTES = 4
_MAX_PREFIXES = 65_536


def prefixes_of(model: str, tokens: bytes) -> tuple[bytes, ...]:
    """Return a digest of each prefix that can be cached: the first 1,024 tokens, the first 1,152, ….

    Args:
        model: name of the model; each has a cache of its own.
        tokens: the whole prompt, uint32 a token.
    """
    if len(tokens) < MIN_TOKENS * TOKEN_BYTES:
        return ()
    running = hashlib.blake2b(model.encode("utf-8", "surrogatepass") + b"\0", digest_size=16)
    running.update(tokens[: MIN_TOKENS * TOKEN_BYTES])
    found = [running.digest()]
    step = STEP_TOKENS * TOKEN_BYTES
    for start in range(MIN_TOKENS * TOKEN_BYTES, len(tokens) - step + 1, step):
        running.update(tokens[start : start + step])
        found.append(running.digest())
    return tuple(found)


class PromptCache:
    """Remembers prefixes; the longest unused go first. Time does not count: entries do not grow old."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def take(self, prefixes: Sequence[bytes]) -> int:
        """Return how many tokens of a prompt came before, and remember the prompt.

        Args:
            prefixes: result of `prefixes_of`.
        """
        cached = 0
        for place in range(len(prefixes), 0, -1):
            if prefixes[place - 1] in self._known:
                cached = MIN_TOKENS + (place - 1) * STEP_TOKENS
                break
        for prefix in reversed(prefixes):  # the shortest last: it serves most prompts, and is to go last
            self._known[prefix] = None
            self._known.move_to_end(prefix)
        while len(self._known) > _MAX_PREFIXES:
            self._known.popitem(last=False)
        return cached


def digest(raw: bytes) -> bytes:
    """Return the 16-byte hash by which a request is remembered."""
    return hashlib.sha256(raw).digest()[:16]
