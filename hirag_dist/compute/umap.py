"""UMAP by umap-learn, which an extra installs: for layers whose vectors lie on few curved dimensions."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from hirag_dist.errors import BackendUnavailable
from hirag_dist.types import FloatMatrix

_NEIGHBOURS = 15  # about a cluster of the default target size, which is what has to stay together


def require_umap() -> None:
    """Look whether umap-learn is there, without the seconds that its import takes.

    Raises:
        BackendUnavailable: it is not installed.
    """
    if find_spec("umap") is None:
        raise BackendUnavailable(
            "clustering.reduction: umap needs `pip install hirag_dist[umap]` (the package umap-learn) on every worker; "
            "pca needs nothing"
        )


def umap_scores(vectors: FloatMatrix, n_components: int, seed: int) -> FloatMatrix:
    """Return (n, n_components) float32 positions, by cosine distances between rows. One thread, for the seed to hold.

    Args:
        vectors: (n, dim) float32, n ≥ 3; what is not finite counts as zero.
        n_components: at most dim and n − 1.
        seed: of the search for neighbours and of the descent.

    Raises:
        BackendUnavailable: umap-learn is not installed.
    """
    require_umap()
    from umap import UMAP

    finite = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
    model = UMAP(
        n_neighbors=min(_NEIGHBOURS, len(finite) - 1),
        n_components=n_components,
        metric="cosine",
        min_dist=0.0,  # clusters are wanted, not a picture
        init="pca",
        random_state=seed,
        n_jobs=1,
    )
    return np.ascontiguousarray(model.fit_transform(finite), np.float32)
