"""Context windows of a run's models: asked of their servers at the start, and kept with the index.

An index goes on with the windows that it was begun with, also where a server has another one by now: other sizes would
be other chunks, and all of them would be paid again. A build from nothing (`--rebuild`, `--fresh`), another model and
an explicit `context_window` are how the sizes change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from hirag_dist.composition.build_records import last_build
from hirag_dist.composition.models import BUILD_ROLES, CHAT_ROLES, answerers, role_endpoints
from hirag_dist.config.model import Config, EndpointConfig
from hirag_dist.errors import SnapshotError, StoreError
from hirag_dist.llm.endpoints.factory import endpoint_settings
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
_PATIENCE_S = 4.0  # for all questions to one server


def ask_windows(config: Config, roles: Iterable[str] = CHAT_ROLES) -> Config:
    """Return `with_windows`, also to a caller whose thread runs an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(with_windows(config, roles))).result()


async def with_windows(config: Config, roles: Iterable[str] = CHAT_ROLES) -> Config:
    """Return the configuration with the context windows that servers tell, asked in parallel; no model is called.

    An endpoint whose `max_concurrent` is not set gets the number of requests that its server works on at a time.

    Args:
        roles: Roles whose endpoints are asked.
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
    return endpoint.model_copy(update=await _told(name, endpoint, config))


async def _told(name: str, endpoint: EndpointConfig, config: Config) -> dict[str, int]:
    """Return the keys of an endpoint that follow from what its server tells."""
    from hirag_dist.llm.endpoints.model_window import find_model_window  # not at the top: it imports an HTTP client

    try:
        async with asyncio.timeout(_PATIENCE_S):
            window = await find_model_window(endpoint_settings(name, endpoint, config))
    except TimeoutError:
        window = None
    if window is None:
        return {}
    if window.is_upper_bound:
        logger.warning(
            "endpoint %s tells no context window, only that its model was trained with %s tokens: if the server set "
            "less, write it into llm.endpoints.%s.context_window",
            name,
            f"{window.tokens:,}",
            name,
        )
        return {}
    slots = "" if window.n_slots is None else f" for each of {window.n_slots} requests at a time"
    logger.info("endpoint %s: context window %s tokens%s", name, f"{window.tokens:,}", slots)
    told = {"context_window": window.tokens}
    if window.n_slots is not None and endpoint.max_concurrent is None:
        told["max_concurrent"] = window.n_slots
    return told


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
            return {"windows": {}, **open_current(store).manifest.build}
    return {}
