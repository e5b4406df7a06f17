"""Initial mixtures of every size from one Ward tree, for as many rows as fit in memory with all their pairs.

Ward's criterion is the hard-assignment likelihood of spherical components with one variance, so cutting its tree gives
EM a start near a good optimum for every number of components. Starts drawn at random put two means into one group and
none into another, which EM does not repair; the loss grows with the number of components.
"""

from __future__ import annotations

import numpy as np

from hirag_dist.core.clustering.gaussian_mixture import MIN_VARIANCE, isotropic_mixture
from hirag_dist.core.clustering.linkage import Tree, cut_labels
from hirag_dist.types import Covariance, FloatMatrix, Mixture


def cut_mixture(rows: FloatMatrix, tree: Tree, n_components: int, covariance: Covariance) -> Mixture:
    """Return one component for each group of the tree cut into `n_components` groups, with one variance for all.

    Args:
        rows: (n, d) float32, as `standardise` gives them.
        tree: `ward_tree` of these rows.
        n_components: at most; merges of equal height aren't taken apart, so copies give fewer.
        covariance: of the mixture.
    """
    n_rows, n_dims = rows.shape
    labels = cut_labels(tree, n_components)
    sizes = np.bincount(labels)
    order = np.argsort(labels, kind="stable")
    firsts = np.concatenate([[0], np.cumsum(sizes[:-1])])
    means = np.add.reduceat(rows[order].astype(np.float64), firsts, axis=0) / sizes[:, None]
    apart = float(np.sum((rows - means[labels]) ** 2))
    width = max(apart / (max(n_rows - len(sizes), 1) * n_dims), MIN_VARIANCE)
    return isotropic_mixture(means.astype(np.float32), width, sizes / n_rows, covariance)
