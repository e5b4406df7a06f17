"""Query engines over an open snapshot."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace

from hirag_dist.composition.models import (
    limited_embedder,
    limited_reranker,
    make_coordinator,
    make_pool,
    retry_policy,
    role_windows,
    settle_embedder,
)
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.tokens import counter
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.endpoints.onnx_models import SentenceEmbedder
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import AnswerModel, Closable, Embedder, Reranker
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.retrieval.engine_resources import EngineResources
from hirag_dist.retrieval.question_embedding import QuestionEmbedder
from hirag_dist.retrieval.vector_index.memory import make_vector_index
from hirag_dist.storage.snapshot.reader import Snapshot

_OUTAGE_S = 1.0  # without an answer of the endpoint, after which a question fails: its caller waits
_QUESTIONS, _MIN_QUESTIONS = 1024, 32  # vectors that an engine of several caches
_ALL_QUESTIONS = 65_536  # the same, of all engines of a process together
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


class SharedModels:
    """Models for questions, with their connections and rate limits.

    Args:
        spending: whether the coordinator has a spending limit.
        meter: counts the calls; None counts nothing.
        n_engines: that may use the models at a time; they share the memory of caches.
    """

    def __init__(
        self,
        config: Config,
        coordinator: QuotaCoordinator,
        *,
        spending: bool = False,
        meter: UsageMeter | None = None,
        n_engines: int = 1,
    ) -> None:
        self.n_engines = n_engines
        self.coordinator, self.spending = coordinator, spending
        worker = uuid.uuid4().hex
        context = None if meter is None else CallContext(meter)
        retried = RetriedCalls(RateLimiter(coordinator, worker, spending), question_policy(config))
        self._model = _AnswerPool(make_pool(config, None, retried, context=context), coordinator, worker)
        self._retried, self._context = retried, context
        self._embedders: dict[str, Embedder] = {}  # by the settings of the endpoint
        self._lock = threading.Lock()
        self._reranker = limited_reranker(config, retried, context)

    def lend(self, config: Config, *, keep: bool) -> tuple[AnswerModel, QuestionEmbedder, Reranker | None]:
        """Return the models for one engine. Each has a cache of questions and batches of its own.

        Args:
            config: with the embedder of the engine's index.
            keep: whether there are other engines, so that none of them closes the models.
        """
        cached = min(_QUESTIONS, max(_ALL_QUESTIONS // self.n_engines, _MIN_QUESTIONS))
        key = config.llm.endpoints[config.llm.roles.embed].model_dump_json()
        with self._lock:
            if key not in self._embedders:
                embedder = limited_embedder(config, None, self._retried, self._context, texts="query")
                if isinstance(embedder, SentenceEmbedder):
                    embedder.embed_now(["a probe"])  # reads the weights, for which the first question would wait
                self._embedders[key] = embedder
            embedder = self._embedders[key]
        return self._model, QuestionEmbedder(embedder, cached, keep=keep), self._reranker

    async def close(self) -> None:
        """Close the connections."""
        await self._model.close()
        for each in (*self._embedders.values(), self._reranker):
            if isinstance(each, Closable):
                await each.close()


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
    models: SharedModels | None = None,
) -> QueryEngine:
    """Return a query engine over a snapshot. Replies to questions are not stored in the index's ledger.

    Args:
        coordinator: the endpoints' limits, shared with other engines of this process; None for separate limits.
        models: of several engines, in place of the three arguments before; None for models of this engine alone.

    Raises:
        BackendUnavailable: vectors or embedder are missing.
        InvalidQuery: the configured embedder is not the index's.
    """
    config = settle_embedder(config, snapshot.manifest.embedder)
    shared = models
    if shared is None:
        coordinator = make_coordinator(config) if coordinator is None else coordinator
        shared = SharedModels(config, coordinator, spending=spending, meter=meter)
    keep = models is not None
    model, embedder, reranker = shared.lend(config, keep=keep)
    snapshot = snapshot.cached_in(config.service.cache_dir, config.service.cache_bytes)
    resources = EngineResources(
        snapshot,
        make_vector_index(config, snapshot),
        embedder,
        model,
        prompts,
        counter(config.tokenizer),
        config.service.access_rule,
        config.tokenizer,
        source_url=config.retrieval.source_url,
        reranker=reranker,
        n_engines=shared.n_engines,
        keep_models=keep,
        answer_window=role_windows(config, ("answer",)).get("answer"),
    )
    return QueryEngine(resources, config.retrieval)
