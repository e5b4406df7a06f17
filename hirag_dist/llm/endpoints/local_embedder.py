"""The embedder of kind auto: the one that an index was built with, and for a new index the best that is installed."""

from __future__ import annotations

import re
from typing import Any

from hirag_dist.llm.endpoints.minilm_weights import WEIGHTS, installed

_HASHING = re.compile(r"hashing-(?P<dim>\d+)(-(?P<seed>\d+))?")


def local_embedder(built_with: str | None) -> dict[str, Any]:
    """Return the settings of an endpoint that embeds in this process.

    Args:
        built_with: name of the embedder that an index records; None for a new index. The name of an embedder that is
            not local counts as None.

    >>> local_embedder("hashing-256-7")
    {'kind': 'hashing', 'dim': 256, 'seed': 7}
    """
    if built_with is not None:
        if match := _HASHING.fullmatch(built_with):
            return {"kind": "hashing", "dim": int(match["dim"]), "seed": int(match["seed"] or 0)}
        if built_with in WEIGHTS:
            return {"kind": "minilm", "model": built_with}
    found = installed()
    return {"kind": "minilm", "model": found[0].embedder} if found else {"kind": "hashing"}
