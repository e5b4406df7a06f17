"""Through what an evaluation asks models: the pool and the embedder of a build, over a ledger of its own."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import ContextVar
from typing import TypeVar

from hirag_dist.composition.models import (
    CHAT_ROLES,
    check_prices,
    has_structured_output,
    limited_embedder,
    make_coordinator,
    make_pool,
    retry_policy,
    role_windows,
    shares,
)
from hirag_dist.config.model import Config, RoleTarget
from hirag_dist.core.prompts.reply_parsing import parse_text
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.normalize import one_line
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import RequestRejected
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.embedding import with_context
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import Closable, Embedder
from hirag_dist.retrieval.engine import QueryEngine, open_engine
from hirag_dist.retrieval.vector_index.memory import make_vector_index
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, FloatMatrix, Rejected

T = TypeVar("T")


# Units share query engines, whose calls carry no context: the unit that runs in a task sets it here.
unit_context: ContextVar[CallContext | None] = ContextVar("unit_context", default=None)


def _current_context() -> CallContext:
    return unit_context.get() or CallContext()


class UnitPool:
    """A pool whose calls carry the context of the evaluation unit that asks. Implements `protocols.ChatPool`."""

    def __init__(self, pool: EndpointPool) -> None:
        self.model_name = pool.model_name
        self.close = pool.close
        self._pool = pool

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        """Return the result of `accept` for the reply, as `EndpointPool.ask`."""
        return await self._pool.with_context(_current_context()).ask(request, accept)


class ModelAccess:
    """The pool and the embedder, with the endpoints' limits and the run's. Serves one event loop."""

    def __init__(
        self,
        config: Config,
        store: Store,
        max_usd: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        """Compose it; nothing is asked yet.

        Args:
            store: whose ledger keeps the replies.
            max_usd, max_tokens: what this run may spend.
        """
        self.count_tokens = counter(config.tokenizer)
        self._config = config
        self._ledger = Ledger(store)
        check_prices(config, (*CHAT_ROLES, "embed"), max_usd)
        client = make_coordinator(config, max_usd, max_tokens)
        spending = max_usd is not None or max_tokens is not None
        self._retried = RetriedCalls(RateLimiter(client, "", spending), retry_policy(config))
        self.pool = UnitPool(make_pool(config, self._ledger, self._retried))
        self._embedder = limited_embedder(config, self._ledger, self._retried, texts="query")
        self.embedder = UnitEmbedder(self._embedder)

    async def structured(self, target: RoleTarget) -> bool:
        """Return whether all models of a role have structured outputs; each endpoint is asked once a ledger."""
        for name, _ in shares(target):
            if not await has_structured_output(name, self._config, self._ledger, self._retried, UsageMeter()):
                return False
        return True

    def engine(self, snapshot: Snapshot, prompts: Prompts) -> QueryEngine:
        """Return the engine of a snapshot, which asks models through this pool; close it before this object."""
        config = self._config
        vectors = make_vector_index(config, snapshot)
        return open_engine(
            snapshot,
            vectors,
            self.embedder,
            KeptAnswers(self.pool),
            config.retrieval,
            prompts,
            self.count_tokens,
            config.service.access_rule,
            config.tokenizer,
            answer_window=role_windows(config, ("answer",)).get("answer"),
        )

    async def close(self) -> None:
        """Wait for the calls in flight, whose replies are stored, and close the connections."""
        await self.pool.close()
        if isinstance(self._embedder, Closable):
            await self._embedder.close()
        await self._ledger.close()


class UnitEmbedder:
    """An embedder of questions whose calls carry the context of the unit that asks. Implements `ports.Embedder`.

    Questions that differ in spaces or forms of characters only are equal, as in `questions.QuestionEmbedder`; unlike
    it this makes no calls for other units, which would be on the bill of a unit that is recorded already. It has no
    `close`: the creator of the embedder closes it.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dim = embedder.name, embedder.dim
        self._embedder = embedder

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows, as the embedder does, and raise what it raises."""
        plain = [unicodedata.normalize("NFC", one_line(text)) for text in texts]
        return await with_context(self._embedder, _current_context()).embed(plain)


class KeptAnswers:
    """Implements `ports.AnswerModel` by whole replies: they go through the ledger, and a bad one is asked again."""

    def __init__(self, pool: UnitPool) -> None:
        self.ask = pool.ask
        self.model_name = pool.model_name
        self._pool: UnitPool = pool

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the whole text, and then the reply.

        Raises:
            RequestRejected: no attempt gave a reply that can be used.
        """
        found = await self._pool.ask(request, parse_text)
        if isinstance(found, Rejected):
            raise RequestRejected(found.reason)
        yield found
        yield ChatReply(found)

    async def close(self) -> None:
        """Do nothing: the creator of the pool closes it."""
