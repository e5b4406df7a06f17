"""Query engines over an open snapshot."""

from __future__ import annotations

import uuid
from dataclasses import replace

from hirag_dist.composition.models import limited_embedder, limited_reranker, make_coordinator, make_pool, retry_policy
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.tokens import counter
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.retrieval.engine import QueryEngine, open_engine
from hirag_dist.retrieval.question_embedding import QuestionEmbedder
from hirag_dist.retrieval.vector_index.factory import make_vector_index
from hirag_dist.storage.snapshot.reader import Snapshot

_OUTAGE_S = 1.0  # without an answer of the endpoint, after which a question fails: its caller waits
_PAUSE_S = 0.25  # after a failure: questions are answered as soon as the endpoint is back


class _AnswerPool:
    """The pool of one engine; closing it returns its permits. Implements `protocols.AnswerModel`."""

    def __init__(self, pool: EndpointPool, coordinator: QuotaCoordinator, worker: str) -> None:
        self.ask = pool.ask
        self.stream = pool.stream
        self.model_name = pool.model_name
        self._pool = pool
        self._coordinator = coordinator
        self._worker = worker

    async def close(self) -> None:
        await self._pool.close()
        await self._coordinator.leave(self._worker)


def question_policy(config: Config) -> RetryPolicy:
    """Return the limits of retries for questions: a build waits for an endpoint that is out, a question does not."""
    policy = retry_policy(config)
    outage_s = min(policy.outage_timeout_s, _OUTAGE_S)
    failover_s = min(policy.failover_s, _OUTAGE_S)
    return replace(policy, outage_timeout_s=outage_s, failover_s=failover_s, max_pause_s=_PAUSE_S, trial_s=_OUTAGE_S)


def make_engine(
    config: Config,
    snapshot: Snapshot,
    prompts: Prompts,
    coordinator: QuotaCoordinator | None = None,
    *,
    spending: bool = False,
    meter: UsageMeter | None = None,
) -> QueryEngine:
    """Return a query engine over a snapshot. Replies to questions are not stored in the index's ledger.

    Args:
        coordinator: the endpoints' limits, shared with other engines of this process; None for separate limits.
        spending: whether the coordinator has a spending limit.
        meter: counts the calls; None counts nothing.

    Raises:
        BackendUnavailable: vectors or embedder are missing.
        InvalidQuery: the configured embedder is not the index's.
    """
    count = counter(config.tokenizer)
    coordinator = make_coordinator(config) if coordinator is None else coordinator
    worker = uuid.uuid4().hex
    context = None if meter is None else CallContext(meter)
    retried = RetriedCalls(RateLimiter(coordinator, worker, spending), question_policy(config))
    pool = make_pool(config, None, retried, context=context)
    embedder = QuestionEmbedder(limited_embedder(config, None, retried, context))
    snapshot = snapshot.cached_in(config.service.cache_dir, config.service.cache_bytes)
    vectors = make_vector_index(config, snapshot)
    rule = config.service.access_rule
    model = _AnswerPool(pool, coordinator, worker)
    reranker = limited_reranker(config, retried, context)
    return open_engine(
        snapshot,
        vectors,
        embedder,
        model,
        config.retrieval,
        prompts,
        count,
        rule,
        config.tokenizer,
        reranker=reranker,
    )
