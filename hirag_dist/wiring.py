"""Configuration to objects. Only here does a name become a backend; a named backend that is missing raises.

Parts of it lie beside the backends: `endpoints`, `kernels` and `vector_index`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial

from hirag_dist.backends.endpoints import endpoint_settings, make_chat_model, make_embedder
from hirag_dist.backends.kernels import has_gpu_workers, known_kernels, make_kernels
from hirag_dist.backends.umap import require_umap
from hirag_dist.backends.vector_index import make_vector_index
from hirag_dist.config import Config, Endpoint, RoleTarget
from hirag_dist.core.limits import Allowance
from hirag_dist.core.prompts import Prompts
from hirag_dist.core.tokens import counter, encoding
from hirag_dist.errors import ConfigError
from hirag_dist.execution.batching import Batches, BatchSettings, BatchTarget
from hirag_dist.execution.inline import InlineExecutor
from hirag_dist.execution.lazy import LazyExecutor
from hirag_dist.index.reader import Snapshot
from hirag_dist.index.store import Store
from hirag_dist.pool.budget import Budget, Lender
from hirag_dist.pool.calling import Caller, Patience
from hirag_dist.pool.chat import Pool, PricedModel
from hirag_dist.pool.embedding import LedgerEmbedder, PaidEmbedder, PricedEmbedder
from hirag_dist.pool.ledger import Ledger
from hirag_dist.pool.probing import probe_forms
from hirag_dist.pool.treasury import GO_ON, Treasury
from hirag_dist.ports import CPU, ChatModel, Embedder, Executor
from hirag_dist.query import QueryEngine
from hirag_dist.questions import QuestionEmbedder
from hirag_dist.stages.base import Services

log = logging.getLogger(__name__)
_UNITS_A_TASK = 16
_UNKNOWN_CONCURRENCY = 128
_LEAST_IN_FLIGHT = 4
BUILD_ROLES = ("extract", "summarise", "report")
CHAT_ROLES = (*BUILD_ROLES, "answer", "judge")


@dataclass(frozen=True)
class Resolved:
    """What had to be found out before any stage key can be made.

    Attributes:
        structured: role of a build → whether JSON schemas are asked for.
        models: role → the models that may answer, each with whatever else decides its replies.
        embedder, dim: name and size of the vectors.
        kernels: name of the numerical backend; empty where a worker with a GPU has yet to say it (`gpu_kernels`),
            which it is asked when the first stage needs one.
    """

    structured: Mapping[str, bool]
    models: Mapping[str, tuple[str, ...]]
    embedder: str
    dim: int
    kernels: str


def resolve(
    config: Config,
    ledger: Ledger | None = None,
    kernels: str | None = None,
    max_usd: float | None = None,
    max_tokens: int | None = None,
) -> Resolved:
    """Find out what the endpoints of a build can do: at most one small call a model, none for built-in ones.

    Args:
        ledger: where the answers are kept, so that an index asks once.
        kernels: that the index was built with before.
        max_usd, max_tokens: what this run may spend, these calls first.

    Raises:
        BudgetReached: a call could pass what may be spent.
        ModelError: an endpoint is out of reach for longer than the configured patience, or does not let us in.
        BackendUnavailable: something that the configuration names is not installed.
    """
    if config.clustering.reduction == "umap":
        require_umap()
    structured = asyncio.run(_probe(config, ledger, max_usd, max_tokens))
    models = {role: answerers(config, getattr(config.llm.roles, role)) for role in CHAT_ROLES}
    embedder = make_embedder(config)
    return Resolved(
        structured={role: all(structured[name] for name in role_endpoints(config, role)) for role in BUILD_ROLES},
        models=models,
        embedder=embedder.name,
        dim=embedder.dim,
        kernels=known_kernels(config, kernels),
    )


async def _probe(
    config: Config, ledger: Ledger | None, max_usd: float | None, max_tokens: int | None
) -> dict[str, bool]:
    used = {name for role in BUILD_ROLES for name in role_endpoints(config, role)}
    spending = max_usd is not None or max_tokens is not None
    caller = Caller(Budget(make_treasury(config, max_usd, max_tokens), spending=spending), patience(config))
    found: dict[str, bool] = {}
    try:
        for name in sorted(used):
            found[name] = await has_forms(name, config, ledger, caller)
    finally:
        await caller.close()
        if ledger is not None:
            await ledger.close()
    return found


async def has_forms(name: str, config: Config, ledger: Ledger | None, caller: Caller) -> bool:
    """Return whether an endpoint is asked for JSON schemas: as configured, else as it answers a small call."""
    endpoint = config.llm.endpoints[name]
    if endpoint.kind != "openai" or endpoint.output != "auto":
        return endpoint.output == "json_schema"
    target = _priced(name, 1.0, make_chat_model(name, config, caller.budget.spending), config)
    try:
        found = await probe_forms(target, ledger, caller)
    finally:
        await target.model.close()
    log.info("endpoint %s: structured outputs %s", name, "on" if found else "off")
    return found


def make_treasury(
    config: Config,
    max_usd: float | None = None,
    max_tokens: int | None = None,
    *,
    sharers: int = 1,
    advice: str = GO_ON,
) -> Treasury:
    """Return what holds the limits of all endpoints and the run's money; on a cluster one actor has it.

    Args:
        sharers: processes that have a treasury each and divide the limits; each may have one call in flight at least.
        advice: what to do at a spending limit, as its error says it.
    """
    allowances = {
        name: Allowance(
            None if endpoint.rpm is None else endpoint.rpm / sharers,
            None if endpoint.tpm is None else endpoint.tpm / sharers,
            None if endpoint.max_concurrent is None else max(endpoint.max_concurrent // sharers, 1),
            endpoint.burst_s,
        )
        for name, endpoint in config.llm.endpoints.items()
    }
    return Treasury(allowances, max_usd, max_tokens, advice=advice)


def make_pool(
    config: Config, ledger: Ledger | None, caller: Caller, more_roles: Mapping[str, RoleTarget] | None = None
) -> Pool:
    """Compose ledger → retry → limit → endpoint for every role.

    Args:
        more_roles: besides those of the configuration: role → who plays it.
    """
    models: dict[str, ChatModel] = {}
    roles: dict[str, list[PricedModel]] = {}
    targets = {role: getattr(config.llm.roles, role) for role in CHAT_ROLES} | dict(more_roles or {})
    for role, target in targets.items():
        for name, weight in shares(target):
            if name not in models:
                models[name] = make_chat_model(name, config, caller.budget.spending)
            roles.setdefault(role, []).append(_priced(name, weight, models[name], config))
    return Pool(roles, ledger, caller, counter(config.tokenizer))


def make_services(
    config: Config, store: Store, spending: bool, lender: Lender, holder: str, kernels: str | None = None
) -> Services:
    """Return what a worker lends to stages. Call it inside the worker: clients do not pickle.

    Args:
        spending: whether the run has a spending limit.
        lender: of permits to call.
        holder: the worker's name there.
        kernels: name of the kernels that the build resolved to: a worker that cannot have them says so at once. None
            to find that out with the first stage that names some.
    """
    ledger = Ledger(store)
    count = counter(config.tokenizer)
    caller = Caller(Budget(lender, holder, spending), patience(config))
    chat = make_pool(config, ledger, caller)
    embedder = limited_embedder(config, ledger, caller)

    async def close() -> None:
        await chat.close()
        for held in (embedder, ledger):
            release = getattr(held, "close", None)
            if release is not None:
                await release()

    made_kernels = cache(make_kernels)
    if kernels is not None:
        made_kernels(kernels)
    return Services(chat, embedder, made_kernels, encoding(config.tokenizer), count, ledger.refresh, close)


def make_executor(
    config: Config, store: Store, max_usd: float | None, max_tokens: int | None, kernels: str | None = None
) -> Executor:
    """Return the configured executor. It starts with its first task: BackendUnavailable rises then.

    Args:
        kernels: name of the kernels that the build resolved to, which every worker must have unless there are workers
            for them; None to find that out with the first stage that names some.
    """
    execution = config.execution
    treasury = partial(make_treasury, config, max_usd, max_tokens)
    apart = has_gpu_workers(config) and kernels != CPU  # an index may have those of the CPU, and keep them
    kernels = None if apart else kernels
    services = partial(make_services, config, store, max_usd is not None or max_tokens is not None, kernels=kernels)

    def inline() -> Executor:
        lender = treasury()
        return InlineExecutor(lambda: services(lender, ""), _tasks_in_flight(config, 1), lender.charge)

    def ray() -> Executor:
        from hirag_dist.execution.ray import GpuWorkers, RayExecutor

        return RayExecutor(
            services,
            treasury,
            workers=execution.workers,
            address=execution.ray_address,
            in_flight=lambda n_workers: _tasks_in_flight(config, n_workers),
            gpu=GpuWorkers(execution.gpu_workers) if apart else None,
        )

    return LazyExecutor(execution.executor, ray if execution.executor == "ray" else inline)


def _tasks_in_flight(config: Config, n_workers: int) -> int:
    """Return how many tasks a worker holds that wait for models: enough for all the calls that may be in flight."""
    if config.execution.tasks_in_flight is not None:
        return config.execution.tasks_in_flight
    used = {name for role in (*CHAT_ROLES, "embed") for name in role_endpoints(config, role)}
    endpoints = [config.llm.endpoints[name] for name in used]
    calls = sum(each.max_concurrent or _UNKNOWN_CONCURRENCY for each in endpoints if each.kind == "openai")
    return max(-(-calls * 2 // (_UNITS_A_TASK * n_workers)), _LEAST_IN_FLIGHT)


def make_batches(
    config: Config,
    store: Store,
    max_usd: float | None,
    max_tokens: int | None,
    fence: Callable[[], AbstractContextManager[None]],
) -> Batches:
    """Return what sends calls in batches and brings home those that are out; arguments as of `Run`."""
    llm = config.llm
    spending = max_usd is not None or max_tokens is not None
    settings = BatchSettings(
        llm.batch, llm.batch_poll_s, llm.batch_rounds, llm.batch_lines, llm.patience_s, max_usd, max_tokens
    )
    return Batches(store, lambda name: _batch_target(name, config, store, spending), settings, fence)


def _batch_target(name: str, config: Config, store: Store, spending: bool) -> BatchTarget:
    from hirag_dist.backends.openai_batches import OpenAiBatches
    from hirag_dist.backends.openai_chat import OpenAiChat

    endpoint = config.llm.endpoints.get(name)
    if endpoint is None or endpoint.kind != "openai":
        raise ConfigError(
            f"a batch is out at endpoint {name!r}, and the configuration has no such endpoint of kind openai: give the "
            f"one that it was sent with (`hirag-dist status --index {store.uri}` shows what is out)"
        )
    chat = OpenAiChat(endpoint_settings(name, endpoint, config, spending), counter(config.tokenizer))
    return BatchTarget(_priced(name, 1.0, chat, config), OpenAiBatches(chat))


def role_endpoints(config: Config, role: str) -> list[str]:
    """Return the names of the endpoints that play a role."""
    return [name for name, _ in shares(getattr(config.llm.roles, role))]


def shares(target: RoleTarget) -> list[tuple[str, float]]:
    """Return who plays a role, each with its weight."""
    if isinstance(target, str):
        return [(target, 1.0)]
    return [(share.endpoint, share.weight) for share in target]


def answerers(config: Config, target: RoleTarget) -> tuple[str, ...]:
    """Return the models that may answer a role, each with whatever else decides its replies: for keys."""
    return tuple(_answerer(name, weight, config) for name, weight in shares(target))


def _answerer(name: str, weight: float, config: Config) -> str:
    """Return a model's name with its share and settings, where they are not the usual ones: for stage keys."""
    endpoint = config.llm.endpoints[name]
    usual = endpoint.temperature == 0.0 and not endpoint.extra_body
    settings = "" if usual else f" {_reply_settings(endpoint)}"
    share = "" if weight == 1.0 else f" ×{weight:g}"
    return f"{make_chat_model(name, config).name}{settings}{share}"


def _reply_settings(endpoint: Endpoint) -> str:
    return json.dumps([endpoint.temperature, endpoint.extra_body], sort_keys=True)


def _priced(name: str, weight: float, model: ChatModel, config: Config) -> PricedModel:
    endpoint = config.llm.endpoints[name]
    price = endpoint.price
    cached = price.input if price.cached is None else price.cached
    paid = endpoint.kind == "openai"
    prices = price.input, cached, price.output
    return PricedModel(name, model, _reply_settings(endpoint), prices, paid, weight, endpoint.max_reply_tokens)


def limited_embedder(config: Config, ledger: Ledger | None, caller: Caller) -> Embedder:
    """Return the embedder, within the endpoint's limits where it has any."""
    embedder = make_embedder(config)
    if not isinstance(embedder, PaidEmbedder):
        return embedder
    name = config.llm.roles.embed
    target = PricedEmbedder(name, embedder, config.llm.endpoints[name].price.input)
    return LedgerEmbedder(target, ledger, caller)


def patience(config: Config) -> Patience:
    """Return how long calls are tried, as configured."""
    llm = config.llm
    return Patience(llm.attempts, llm.patience_s, llm.failover_s, llm.deadline_s, llm.hedge_s)


class _AnswerPool:
    """Implements `ports.AnswerModel` over the pool of one engine, which leaves the treasury when it is closed."""

    def __init__(self, pool: Pool, treasury: Treasury, holder: str) -> None:
        self.ask = pool.ask
        self.stream = pool.stream
        self.model_name = pool.model_name
        self._pool = pool
        self._treasury = treasury
        self._holder = holder

    async def close(self) -> None:
        await self._pool.close()
        await self._treasury.leave(self._holder)


def make_engine(
    config: Config,
    snapshot: Snapshot,
    prompts: Prompts,
    treasury: Treasury | None = None,
    *,
    spending: bool = False,
) -> QueryEngine:
    """Return what answers questions over a snapshot. Replies to questions are not kept in the index's ledger.

    Args:
        treasury: the endpoints' limits, where this process has other engines before or after this one; None for
            limits of its own.
        spending: whether the treasury has a spending limit.

    Raises:
        BackendUnavailable: vectors or embedder are missing.
        InvalidQuery: the configured embedder is not the index's.
    """
    count = counter(config.tokenizer)
    lender = make_treasury(config) if treasury is None else treasury
    holder = uuid.uuid4().hex
    caller = Caller(Budget(lender, holder, spending), patience(config), keeps=False)
    pool = make_pool(config, None, caller)
    embedder = QuestionEmbedder(limited_embedder(config, None, caller))
    snapshot = snapshot.cached_in(config.service.cache_dir, config.service.cache_bytes)
    vectors = make_vector_index(config, snapshot)
    rule = config.service.label_rule
    model = _AnswerPool(pool, lender, holder)
    return QueryEngine(snapshot, vectors, embedder, model, config.retrieval, prompts, count, rule, config.tokenizer)
