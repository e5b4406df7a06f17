"""The choice of the embedder that an endpoint of kind auto stands for."""

from __future__ import annotations

import logging

from hirag_dist.config.model import Config
from hirag_dist.llm.endpoints.minilm import FORMER_NAME, NAME, local_embedder

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
    elif endpoint.kind == "minilm" and endpoint.model is None and built_with in (NAME, FORMER_NAME):
        settled = endpoint.model_copy(update={"model": built_with})
    else:
        return config
    llm = config.llm.model_copy(update={"endpoints": {**config.llm.endpoints, name: settled}})
    logger.info("embedder %s: %s", name, settled.model or settled.kind)
    return config.model_copy(update={"llm": llm})
