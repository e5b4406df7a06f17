"""Opening of an evaluation's folder: checks, exclusive use, and construction of the session."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from hirag_dist.composition.models import settle_embedder
from hirag_dist.composition.windows import with_windows
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.errors import ConfigError, StoreError
from hirag_dist.evaluation.model_access import ModelAccess
from hirag_dist.evaluation.session import Session, SessionOptions
from hirag_dist.llm.reply_store import Ledger, compact
from hirag_dist.protocols import EventListener
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
_JOURNAL = "journal"
_HOLD = ".held"


@asynccontextmanager
async def open_session(
    order: SessionOptions, config: Config, prompts: Prompts, listeners: Sequence[EventListener] = ()
) -> AsyncIterator[Session]:
    """Open an evaluation's folder, and hold it until the end of the block.

    Raises:
        ConfigError: the folder is no local one, is an index, or is in use by another run.
        SnapshotError: the index cannot be opened.
        StoreError: the folder cannot be written to.
    """
    if "://" in order.out:
        raise ConfigError(f"--out {order.out}: give a folder of this machine")
    store = Store(order.out)
    if store.exists("snapshots") or store.exists("current"):
        raise ConfigError(f"--out {order.out} is an index; give the evaluation a folder of its own")
    store.check_writable("a folder for an evaluation")
    hold = store.try_lock(_HOLD, create=True)
    if hold is None:
        raise ConfigError(f"another run evaluates into {order.out}; wait for its end, or give another --out")
    try:
        if order.fresh:
            store.delete(_JOURNAL)
        journal = Store(f"{order.out}/{_JOURNAL}")
        for each in (store, journal):
            _tidy(each)
        snapshot = None
        if order.index is not None:
            snapshot = open_current(Store(order.index), order.snapshot)
            snapshot = snapshot.cached_in(config.service.cache_dir, config.service.cache_bytes)
            config = settle_embedder(config, snapshot.manifest.embedder)
        config = await with_windows(config)
        asking = ModelAccess(config, store, order.max_usd, order.max_tokens, order.more_roles)
        session = Session(order, config, prompts, asking, Ledger(journal), snapshot, listeners)
        try:
            yield session
        finally:
            await session.close()
    finally:
        hold.release()


def _tidy(store: Store) -> None:
    try:
        compact(store)
    except StoreError as error:
        logger.warning("the ledger was not compacted: %s", error)
