"""Values that every part of one build shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ResolvedModels:
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
