"""Through what an evaluation asks models: the pool and the embedder of a build, over a ledger of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from hirag_dist.backends.vector_index import make_vector_index
from hirag_dist.config import Config, RoleTarget
from hirag_dist.core.prompts import Prompts
from hirag_dist.core.replies import parse_text
from hirag_dist.core.tokens import counter
from hirag_dist.errors import RequestRejected
from hirag_dist.index.reader import Snapshot
from hirag_dist.index.store import Store
from hirag_dist.pool.budget import Budget
from hirag_dist.pool.calling import Caller
from hirag_dist.pool.chat import Pool
from hirag_dist.pool.ledger import Ledger
from hirag_dist.ports import ChatPool, Embedder
from hirag_dist.query import QueryEngine
from hirag_dist.questions import QuestionEmbedder
from hirag_dist.types import ChatRequest, Rejected
from hirag_dist.wiring import has_forms, limited_embedder, make_pool, make_treasury, patience, shares


class Asking:
    """The pool and the embedder, with the endpoints' limits and the run's. Serves one event loop."""

    def __init__(
        self,
        config: Config,
        store: Store,
        max_usd: float | None = None,
        max_tokens: int | None = None,
        more_roles: Mapping[str, RoleTarget] | None = None,
    ) -> None:
        """Compose it; nothing is asked yet.

        Args:
            store: whose ledger keeps the replies.
            max_usd, max_tokens: what this run may spend.
            more_roles: as of `make_pool`.
        """
        self.count_tokens = counter(config.tokenizer)
        self._config = config
        self._ledger = Ledger(store)
        lender = make_treasury(config, max_usd, max_tokens)
        spending = max_usd is not None or max_tokens is not None
        self._caller = Caller(Budget(lender, "", spending), patience(config))
        self.pool = make_pool(config, self._ledger, self._caller, more_roles)
        self.embedder = QuestionEmbedder(limited_embedder(config, self._ledger, self._caller))

    async def structured(self, target: RoleTarget) -> bool:
        """Return whether all models of a role have structured outputs; each endpoint is asked once a ledger."""
        for name, _ in shares(target):
            if not await has_forms(name, self._config, self._ledger, self._caller):
                return False
        return True

    def engine(self, snapshot: Snapshot, prompts: Prompts) -> QueryEngine:
        """Return what answers questions over a snapshot, through this pool; close it before this."""
        config = self._config
        vectors = make_vector_index(config, snapshot)
        return QueryEngine(
            snapshot,
            vectors,
            _Shared(self.embedder),
            KeptAnswers(self.pool),
            config.retrieval,
            prompts,
            self.count_tokens,
            config.service.label_rule,
            config.tokenizer,
        )

    async def close(self) -> None:
        """Wait for what is in flight, which is stored, and let go of connections."""
        await self.pool.close()
        await self.embedder.close()
        await self._ledger.close()


class _Shared:
    """An embedder without its `close`: whoever made it closes it."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dim = embedder.name, embedder.dim
        self.embed = embedder.embed


class KeptAnswers:
    """Implements `ports.AnswerModel` by whole replies: they go through the ledger, and a bad one is asked again."""

    def __init__(self, pool: Pool) -> None:
        self.model_name = pool.model_name
        self._pool: ChatPool = pool

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str]:
        """Yield the whole reply.

        Raises:
            RequestRejected: no attempt gave a reply that can be used.
        """
        found = await self._pool.ask(request, parse_text)
        if isinstance(found, Rejected):
            raise RequestRejected(found.reason)
        yield found

    async def close(self) -> None:
        """Leave the pool to whoever made it."""
