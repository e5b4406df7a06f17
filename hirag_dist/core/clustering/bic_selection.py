"""Selection of the number of mixture components by the Bayesian information criterion."""

from __future__ import annotations

from hirag_dist.core.clustering.gaussian_mixture import fit
from hirag_dist.core.clustering.linkage import ward_tree
from hirag_dist.core.clustering.partition_tree import (
    ClusterSettings,
)
from hirag_dist.core.clustering.ward import cut_mixture
from hirag_dist.protocols import Kernels
from hirag_dist.types import FloatMatrix, Mixture, MixtureStatistics


def component_grid(n_rows: int, target_size: int, steps: int = 4) -> list[int]:
    """Return the numbers of components to try: from clusters of twice the target size to half of it.

    >>> component_grid(1000, 20)
    [25, 35, 50, 71, 100]
    """
    low, high = n_rows / (2 * target_size), n_rows / (target_size / 2)
    grid = [round(low * (high / low) ** (step / steps)) for step in range(steps + 1)]
    return sorted({min(max(k, 1), n_rows) for k in grid})


def choose_mixture(kernels: Kernels, rows: FloatMatrix, settings: ClusterSettings) -> Mixture:
    """Return the mixture with the lowest BIC over `component_grid`; ties go to fewer components.

    Every number starts from the same tree of merges, so nothing is drawn. The sweep goes upwards and stops once BIC has
    risen twice in a row.

    Args:
        kernels: does the products.
        rows: (n, d) float32, as `standardise` gives them, n ≥ 1; all pairs of them are compared.
        settings: target size and covariance are used.

    Raises:
        ValueError: no rows.
    """
    if not len(rows):
        raise ValueError("a mixture needs at least one row")

    def statistics_of(mixture: Mixture) -> MixtureStatistics:
        return kernels.statistics(rows, mixture)

    tree = ward_tree(rows)
    best: Mixture | None = None
    risen = 0
    for n_components in component_grid(len(rows), settings.target_size):
        mixture = fit(statistics_of, cut_mixture(rows, tree, n_components, settings.covariance), len(rows))
        if best is None or mixture.bic < best.bic:
            best, risen = mixture, 0
        else:
            risen += 1
            if risen == 2:
                break
    assert best is not None  # the grid is never empty
    return best
