"""Objects of a build: resolved models, worker services, executor."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import cache, partial

from hirag_dist.composition.logs import LogSettings
from hirag_dist.composition.models import (
    BUILD_ROLES,
    CHAT_ROLES,
    answerers,
    has_structured_output,
    lexical_embedding_notice,
    limited_embedder,
    make_coordinator,
    make_pool,
    retry_policy,
    role_endpoints,
)
from hirag_dist.compute.kernels import has_gpu_workers, known_kernels, make_kernels, require_umap
from hirag_dist.config.model import Config
from hirag_dist.core.text.tokens import counter, encoding
from hirag_dist.errors import BackendUnavailable
from hirag_dist.execution.events import ExecutorStarting
from hirag_dist.execution.executors import InlineExecutor, LazyExecutor
from hirag_dist.execution.stage import Services
from hirag_dist.execution.tracing import CallTracing, make_provider
from hirag_dist.indexing.context import ResolvedModels
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.chat import PackingPool
from hirag_dist.llm.embedding import embedder_identity, with_context
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.llm.key_locks import KeyLockClient, KeyLocks
from hirag_dist.llm.limits.protocol import QuotaClient
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import CPU, Closable, Embedder, EventListener, Executor
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
_UNITS_A_TASK = 16
_UNKNOWN_CONCURRENCY = 128
_MIN_IN_FLIGHT = 4


def resolve(
    config: Config,
    ledger: Ledger | None = None,
    kernels: str | None = None,
    max_usd: float | None = None,
    max_tokens: int | None = None,
    probes: UsageMeter | None = None,
) -> ResolvedModels:
    """Find out what the endpoints of a build can do: at most one small call a model, none for built-in ones.

    Args:
        ledger: where the answers are kept, so that an index asks once.
        kernels: that the index was built with before.
        max_usd, max_tokens: what this run may spend, these calls first.
        probes: counts these calls.

    Raises:
        BudgetReached: a call could pass what may be spent.
        ModelError: an endpoint is out of reach for longer than the configured patience, or does not let us in.
        BackendUnavailable: something that the configuration names is not installed.
        ConfigError: the vectors are to be reduced by UMAP on a CPU, or without cuML.
    """
    if notice := lexical_embedding_notice(config):
        logger.warning("%s", notice)
    structured = asyncio.run(_probe(config, ledger, max_usd, max_tokens, probes or UsageMeter()))
    models = {role: answerers(config, getattr(config.llm.roles, role)) for role in CHAT_ROLES}
    embedder = make_embedder(config)
    name = known_kernels(config, kernels)
    if config.clustering.reduction == "umap":
        require_umap(config, name)
    return ResolvedModels(
        structured={role: all(structured[name] for name in role_endpoints(config, role)) for role in BUILD_ROLES},
        models=models,
        embedder=embedder_identity(embedder),
        embedder_name=embedder.name,
        dim=embedder.dim,
        kernels=name,
    )


async def _probe(
    config: Config, ledger: Ledger | None, max_usd: float | None, max_tokens: int | None, meter: UsageMeter
) -> dict[str, bool]:
    used = {name for role in BUILD_ROLES for name in role_endpoints(config, role)}
    spending = max_usd is not None or max_tokens is not None
    retried = RetriedCalls(
        RateLimiter(make_coordinator(config, max_usd, max_tokens), spending=spending), retry_policy(config)
    )
    found: dict[str, bool] = {}
    try:
        for name in sorted(used):
            found[name] = await has_structured_output(name, config, ledger, retried, meter)
    finally:
        await retried.close()
        if ledger is not None:
            await ledger.close()
    return found


def make_services(
    config: Config,
    store: Store,
    spending: bool,
    client: QuotaClient,
    worker: str,
    kernels: str | None = None,
    traceparent: str = "",
) -> Services:
    """Return the services of a worker. Call it inside the worker: clients do not pickle.

    Args:
        spending: whether the run has a spending limit.
        client: the quota coordinator, local or remote. On a cluster it has the key locks too.
        worker: the worker's unique name.
        kernels: name of the kernels that the build resolved to: a worker that cannot have them says so at once. None
            to find that out with the first stage that names some.
        traceparent: Value of `BuildTracing.traceparent`; empty: calls are not traced.
    """
    tracing = None
    if traceparent and config.traces_endpoint is not None:
        tracing = CallTracing(make_provider(config.traces_endpoint), traceparent)
    ledger = Ledger(store)
    count = counter(config.tokenizer)
    retried = RetriedCalls(RateLimiter(client, worker, spending, observer=tracing), retry_policy(config))
    locks = KeyLocks(client, worker, ledger.refresh) if isinstance(client, KeyLockClient) else None
    chat = make_pool(config, ledger, retried, locks=locks)
    embedder = limited_embedder(config, ledger, retried, locks=locks)

    async def close() -> None:
        await chat.close()
        if isinstance(embedder, Closable):
            await embedder.close()
        await ledger.close()
        if locks is not None:
            locks.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    catch_up = ledger.refresh if locks is None else locks.refresh

    async def is_superseded(context: CallContext) -> bool:
        if not context.stored:
            return False
        await catch_up()
        found = await ledger.get_many(list(context.stored))
        return any(found.get(key, record) != record for key, record in context.stored.items())

    made_kernels = cache(make_kernels)
    if kernels is not None:
        made_kernels(kernels)

    def bind(context: CallContext) -> tuple[PackingPool, Embedder]:
        return chat.with_context(context), with_context(embedder, context)

    return Services(
        chat,
        embedder,
        made_kernels,
        encoding(config.tokenizer),
        count,
        catch_up,
        close,
        bind,
        is_superseded,
    )


def make_executor(
    config: Config,
    store: Store,
    max_usd: float | None,
    max_tokens: int | None,
    kernels: str | None = None,
    emit: EventListener = lambda event: None,
    traceparent: str = "",
) -> Executor:
    """Return the configured executor. It starts with its first task: BackendUnavailable rises then.

    Args:
        emit: is given `ExecutorStarting` where the start of the executor takes seconds.
        kernels: name of the kernels that the build resolved to, which every worker must have unless there are workers
            for them; None to find that out with the first stage that names some.
    """
    execution = config.execution
    make_quota = partial(make_coordinator, config, max_usd, max_tokens)
    apart = has_gpu_workers(config) and kernels != CPU  # an index may have those of the CPU, and keep them
    kernels = None if apart else kernels
    spending = max_usd is not None or max_tokens is not None
    services = partial(make_services, config, store, spending, kernels=kernels, traceparent=traceparent)

    def inline() -> Executor:
        coordinator = make_quota()
        return InlineExecutor(lambda: services(coordinator, ""), _tasks_in_flight(config, 1), coordinator.totals)

    def ray() -> Executor:
        emit(ExecutorStarting("ray"))
        try:
            from hirag_dist.execution.ray import GpuWorkers, RayExecutor
        except ModuleNotFoundError as error:
            raise BackendUnavailable(
                f"executor ray needs the package {error.name}, which is not installed: pip install hirag-dist, or use "
                "--executor inline"
            ) from error
        return RayExecutor(
            partial(LogSettings("ray worker").apply, services),
            partial(LogSettings("ray limits").apply, make_quota),
            workers=execution.workers,
            address=execution.ray_address,
            in_flight=lambda n_workers: _tasks_in_flight(config, n_workers),
            gpu=GpuWorkers(execution.gpu_workers) if apart else None,
        )

    if execution.chosen == "inline":
        return LazyExecutor("inline", inline)
    if execution.chosen == "auto" and not os.environ.get("RAY_ADDRESS"):
        return LazyExecutor("inline", inline, large=("ray", ray))
    return LazyExecutor("ray", ray)


def _tasks_in_flight(config: Config, n_workers: int) -> int:
    """Return how many tasks a worker holds that wait for models: enough for all the calls that may be in flight."""
    used = {name for role in (*CHAT_ROLES, "embed") for name in role_endpoints(config, role)}
    endpoints = [config.llm.endpoints[name] for name in used]
    calls = sum(each.max_concurrent or _UNKNOWN_CONCURRENCY for each in endpoints if each.kind == "openai")
    return max(-(-calls * 2 // (_UNITS_A_TASK * n_workers)), _MIN_IN_FLIGHT)
