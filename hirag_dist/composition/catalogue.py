"""The indexes of a catalogue, from the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pydantic import ValidationError

from hirag_dist.composition.models import make_coordinator
from hirag_dist.composition.query import SharedModels, make_engine
from hirag_dist.config.model import Config, RetrievalConfig
from hirag_dist.config.service import ServiceConfig, is_index_name
from hirag_dist.errors import ConfigError, StoreError
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.service.catalogue import CatalogueLimits, IndexCatalogue, IndexDefinition
from hirag_dist.service.engine import EngineRunner, ThreadEngineRunner
from hirag_dist.service.hot_swap import SnapshotSwapper, in_daemon_thread
from hirag_dist.storage.layout import CURRENT
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store

_NEVER_S = 86_400.0  # the catalogue checks the snapshots


def has_catalogue(service: ServiceConfig) -> bool:
    """Return whether a service has indexes by name."""
    return service.catalogue is not None or bool(service.indexes)


def catalogue_config(config: Config, index: str = "") -> Config:
    """Return the configuration of a service with many indexes.

    Milvus Lite, which has a process of its own for each index, is never chosen.

    Args:
        index: the only index that is asked for; empty for a catalogue.

    Raises:
        ConfigError: the configuration contradicts a catalogue.
    """
    service, vectors = config.service, config.vectors
    if index:
        raise ConfigError("give either one index, or service.catalogue and service.indexes; not both")
    if vectors.backend == "milvus-lite":
        raise ConfigError("vectors.backend milvus-lite is for one index: set it to memory or milvus")
    for name, settings in service.indexes.items():
        if not is_index_name(name):
            raise ConfigError(
                f"service.indexes.{name}: a name has up to 63 letters, digits and . _ -, a letter or digit first"
            )
        if settings.uri is None and service.catalogue is None:
            raise ConfigError(f"service.indexes.{name}.uri is missing, and there is no service.catalogue")
        index_retrieval(config, name)
    chosen = vectors.model_copy(update={"backend": vectors.chosen})
    return config.model_copy(update={"vectors": chosen})


def index_retrieval(config: Config, name: str) -> RetrievalConfig:
    """Return the section `retrieval` of an index.

    Raises:
        ConfigError: one of its own keys is unknown, or out of bounds.
    """
    settings = config.service.indexes.get(name)
    if settings is None or not settings.retrieval:
        return config.retrieval
    try:
        return RetrievalConfig.model_validate(config.retrieval.model_dump() | settings.retrieval)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        where = f"service.indexes.{name}.retrieval"
        raise ConfigError("; ".join(f"{where}.{fault['loc'][-1]}: {fault['msg']}" for fault in faults)) from None


class CatalogueListing:
    """Lists the indexes: sub-folders of `service.catalogue` that hold a published index, and `service.indexes`.

    Args:
        service: the configuration.
    """

    def __init__(self, service: ServiceConfig) -> None:
        self._service = service
        self._store = None if service.catalogue is None else Store(service.catalogue)
        self._published: frozenset[str] = frozenset()  # names that had an index at the last listing

    def __call__(self) -> Mapping[str, IndexDefinition]:
        """Return the indexes by name.

        Raises:
            StoreError: the folder cannot be read.
        """
        found: dict[str, IndexDefinition] = {}
        store = self._store
        if store is not None:
            if store.local is not None and not store.local.is_dir():  # a missing mount must not remove every index
                raise StoreError(f"service.catalogue {store.uri} is no folder")
            names = frozenset(filter(is_index_name, store.names("")))
            # On an object store a check is a request, so only new names are checked.
            known = self._published if store.local is None else frozenset[str]()
            published = {name for name in names if name in known or store.exists(f"{name}/{CURRENT}")}
            self._published = frozenset(published)
            root = str(self._service.catalogue).rstrip("/")
            found = {name: self._definition(name, f"{root}/{name}") for name in published}
        for name, settings in self._service.indexes.items():
            if settings.uri is not None:
                found[name] = self._definition(name, settings.uri)
        return found

    def _definition(self, name: str, uri: str) -> IndexDefinition:
        settings = self._service.indexes.get(name)
        if settings is None:
            return IndexDefinition(name, uri)
        return IndexDefinition(name, uri, settings.title)


def make_catalogue(config: Config, sharers: int = 1) -> IndexCatalogue:
    """Return the catalogue of a configuration, not started.

    Models, prompts, tokenizer and rate limits are shared by all its indexes; caches are not.

    Args:
        config: as `catalogue_config` returns it.
        sharers: processes that divide the limits of the endpoints.
    """
    service = config.service
    models = SharedModels(config, make_coordinator(config, sharers=sharers), n_engines=service.max_open_indexes)
    prompts = load_prompts(config.prompts)

    def make(definition: IndexDefinition, store: Store, *, again: bool = False) -> QueryEngine:
        own = config.model_copy(update={"retrieval": index_retrieval(config, definition.name)})
        snapshot = open_snapshot(store) if again else open_current(store)  # later the served one stays
        return make_engine(own, snapshot, prompts, models=models)

    def discard(engine: QueryEngine) -> None:
        asyncio.run(engine.close())

    def make_swapper(definition: IndexDefinition, runner: EngineRunner) -> SnapshotSwapper:
        store = Store(definition.uri)
        opened = False

        async def open_engine() -> QueryEngine:
            nonlocal opened
            again, opened = opened, True
            return await in_daemon_thread(lambda: make(definition, store, again=again), discard)

        return SnapshotSwapper(open_engine, lambda: current_id(store), _NEVER_S, runner, definition.name)

    async def open_once(definition: IndexDefinition) -> None:
        engine = await in_daemon_thread(lambda: make(definition, Store(definition.uri)), discard)
        await engine.close()

    smaller = min(service.max_concurrent_requests, service.max_concurrent_answers)
    limits = CatalogueLimits(
        max_open=service.max_open_indexes,
        max_concurrent=max(smaller // 2, 1),  # one index leaves room for the others
    )
    runner = ThreadEngineRunner()
    return IndexCatalogue(
        CatalogueListing(service),
        make_swapper,
        limits,
        runner,
        service.default_index,
        close_models=models.close,
        open_once=open_once,
    )
