"""The choice of the embedder that an endpoint of kind auto stands for."""

from __future__ import annotations

import logging
from contextlib import suppress

from hirag_dist.composition.build_records import last_build
from hirag_dist.config.model import Config
from hirag_dist.errors import SnapshotError, StoreError
from hirag_dist.llm.endpoints.local_embedder import local_embedder
from hirag_dist.llm.endpoints.minilm_weights import WEIGHTS
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)


def settle_embedder(config: Config, built_with: str | None) -> Config:
    """Return the configuration with an embedder in place of `auto`, and with the weights of the index for `minilm`.

    Args:
        built_with: name of the embedder that the index records; None for a new index.
    """
    name = config.llm.roles.embed
    endpoint = config.llm.endpoints[name]
    if endpoint.kind == "auto":
        settled = endpoint.model_copy(update=local_embedder(built_with))
    elif endpoint.kind == "minilm" and endpoint.model is None and built_with in WEIGHTS:
        settled = endpoint.model_copy(update={"model": built_with})
    else:
        return config
    llm = config.llm.model_copy(update={"endpoints": {**config.llm.endpoints, name: settled}})
    logger.info("embedder %s: %s", name, settled.model or settled.kind)
    return config.model_copy(update={"llm": llm})


def recorded_embedder(store: Store) -> str | None:
    """Return the embedder of an index: of its last build, which may be unfinished, else of its current snapshot."""
    with suppress(StoreError):  # a damaged record is none
        if name := ((last_build(store) or {}).get("decisive") or {}).get("embedder"):
            return str(name)
    with suppress(SnapshotError):  # of another version, or damaged: a build makes a new one
        if current_id(store) is not None:
            return open_current(store).manifest.embedder
    return None
