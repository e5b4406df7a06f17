"""Gaussian mixtures with soft, overlapping clusters (paper Eq. 8), for layers from a handful of entities up.

Diagonal covariance, k-means++ start, log domain, float32 products with float64 sums over fixed blocks of rows, so
memory is bounded by a block and the result depends on the seed alone. The number of components is chosen by BIC
over a geometric grid whose ends grow with the layer. A cluster too large for one prompt is split again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.types import FloatMatrix, FloatVector, IntVector

_BLOCK_ROWS = 4096
_MAX_ITERATIONS = 15
_TOLERANCE = 1e-3  # nats a row
_MIN_VARIANCE = 1e-4  # of data scaled to unit mean variance: a lone point keeps a finite density


@dataclass(frozen=True, slots=True)
class Mixture:
    """A fitted mixture.

    Attributes:
        weights: (k,) shares, summing to 1.
        means: (k, d).
        variances: (k, d).
        log_likelihood: of all rows together, in nats.
        bic: lower is better.
    """

    weights: FloatVector
    means: FloatMatrix
    variances: FloatMatrix
    log_likelihood: float
    bic: float


@dataclass(frozen=True, slots=True)
class SoftClusters:
    """Overlapping clusters of rows, one entry a membership, sorted by (cluster, row).

    Attributes:
        clusters: (n_entries,) cluster of each membership, 0 … n_clusters − 1, none empty.
        rows: (n_entries,) member row.
        responsibilities: (n_entries,) posterior share, float32.
        best: (n_entries,) whether this is the row's most likely cluster; true once for every row.
        n_components: chosen by BIC before splitting.
    """

    clusters: IntVector
    rows: IntVector
    responsibilities: NDArray[np.float32]
    best: NDArray[np.bool_]
    n_components: int

    @property
    def sizes(self) -> IntVector:
        """(n_clusters,) members of each cluster."""
        return np.bincount(self.clusters)


def component_grid(n_rows: int, target_size: int, steps: int = 4) -> list[int]:
    """Return the numbers of components to try: from clusters of twice the target size to half of it.

    >>> component_grid(1000, 20)
    [25, 35, 50, 71, 100]
    """
    low, high = n_rows / (2 * target_size), n_rows / (target_size / 2)
    grid = [round(low * (high / low) ** (step / steps)) for step in range(steps + 1)]
    return sorted({min(max(k, 1), n_rows) for k in grid})


def fit_mixture(rows: FloatMatrix, n_components: int, seed: int) -> Mixture:
    """Fit a diagonal mixture by expectation and maximisation.

    Args:
        rows: (n, d) float32, finite, centred and scaled by `standardise`; n ≥ n_components ≥ 1.

    Raises:
        ValueError: fewer rows than components.
    """
    n_rows, n_dims = rows.shape
    if not 1 <= n_components <= n_rows:
        raise ValueError(f"n_components must be between 1 and the {n_rows} rows, got {n_components}")
    rng = np.random.default_rng(seed)
    means, spread = _spread_start(rows, n_components, rng)
    weights = np.full(n_components, 1.0 / n_components)
    variances = np.full((n_components, n_dims), max(spread, _MIN_VARIANCE), np.float32)
    before = -np.inf
    for _ in range(_MAX_ITERATIONS):
        counts = np.zeros(n_components)
        sums = np.zeros((n_components, n_dims))
        squares = np.zeros((n_components, n_dims))
        total = 0.0
        for first in range(0, n_rows, _BLOCK_ROWS):
            block = rows[first : first + _BLOCK_ROWS]
            shares, log_density = _posterior(block, weights, means, variances)
            total += float(log_density.sum(dtype=np.float64))
            counts += shares.sum(axis=0, dtype=np.float64)
            sums += shares.T @ block
            squares += shares.T @ (block * block)
        safe = np.maximum(counts, 1e-8)[:, None]
        weights = np.maximum(counts, 1e-8) / np.maximum(counts, 1e-8).sum()
        means = (sums / safe).astype(np.float32)
        variances = np.maximum(squares / safe - (sums / safe) ** 2, _MIN_VARIANCE).astype(np.float32)
        if total - before < _TOLERANCE * n_rows:
            before = total
            break
        before = total
    n_parameters = n_components * (2 * n_dims + 1) - 1
    return Mixture(weights, means, variances, before, n_parameters * np.log(n_rows) - 2.0 * before)


def choose_mixture(rows: FloatMatrix, target_size: int, seed: int) -> Mixture:
    """Return the mixture with the lowest BIC over `component_grid`; ties go to fewer components.

    The sweep goes upwards and stops once BIC has risen twice in a row.
    """
    best: Mixture | None = None
    risen = 0
    for n_components in component_grid(len(rows), target_size):
        mixture = fit_mixture(rows, n_components, seed)
        if best is None or mixture.bic < best.bic:
            best, risen = mixture, 0
        else:
            risen += 1
            if risen == 2:
                break
    if best is None:
        raise ValueError("a mixture needs at least one row")
    return best


def standardise(rows: FloatMatrix) -> FloatMatrix:
    """Return rows centred and scaled by one factor to a mean variance of 1, with anything not finite made 0."""
    finite = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32, copy=False)
    centred = finite - finite.mean(axis=0, dtype=np.float64).astype(np.float32)
    scale = float(np.sqrt(np.mean(np.square(centred, dtype=np.float64))))
    scaled: FloatMatrix = centred / np.float32(scale) if scale > 0 else centred
    return scaled


def soft_clusters(rows: FloatMatrix, target_size: int, max_size: int, threshold: float, seed: int) -> SoftClusters:
    """Group rows into overlapping clusters that cover all of them (Eq. 8).

    A row belongs to every cluster whose responsibility passes the threshold, and always to its best one. A cluster
    of more than `max_size` members is split again by the same means, and by rank where it holds nothing but copies.

    Args:
        rows: (n, d) float32 reduced embeddings, n ≥ 1.
        target_size: members that a cluster should have, about.
        max_size: members that it may have.
        threshold: in (0, 1).
    """
    scaled = standardise(rows)
    mixture = choose_mixture(scaled, target_size, seed)
    clusters, members, shares = _assign(scaled, mixture, threshold)
    parts: list[tuple[IntVector, NDArray[np.float32]]] = []
    order = np.lexsort((members, clusters))
    clusters, members, shares = clusters[order], members[order], shares[order]
    bounds = np.flatnonzero(np.diff(clusters, prepend=-1))
    for first, last in zip(bounds, [*bounds[1:], len(clusters)], strict=True):
        parts.extend(_split(scaled, members[first:last], shares[first:last], target_size, max_size, seed))
    distinct = {members.tobytes(): (members, shares) for members, shares in reversed(parts)}
    parts = sorted(distinct.values(), key=lambda part: (int(part[0][0]), len(part[0]), part[0].tobytes()))
    return _flatten(parts, len(mixture.weights))


def _split(
    rows: FloatMatrix,
    members: IntVector,
    shares: NDArray[np.float32],
    target_size: int,
    max_size: int,
    seed: int,
) -> list[tuple[IntVector, NDArray[np.float32]]]:
    if len(members) <= max_size:
        return [(members, shares)]
    inside = standardise(rows[members])
    n_parts = -(-2 * len(members) // (target_size + max_size))
    mixture = fit_mixture(inside, n_parts, seed)
    labels = np.concatenate(
        [
            _posterior(inside[first : first + _BLOCK_ROWS], mixture.weights, mixture.means, mixture.variances)[
                0
            ].argmax(1)
            for first in range(0, len(inside), _BLOCK_ROWS)
        ]
    )
    sizes = np.bincount(labels, minlength=n_parts)
    if sizes.max() == len(members):  # nothing to tell the members apart: cut them by rank
        labels = np.arange(len(members)) * n_parts // len(members)
    parts: list[tuple[IntVector, NDArray[np.float32]]] = []
    for label in np.unique(labels):
        chosen = labels == label
        parts.extend(_split(rows, members[chosen], shares[chosen], target_size, max_size, seed))
    return parts


def _flatten(parts: list[tuple[IntVector, NDArray[np.float32]]], n_components: int) -> SoftClusters:
    clusters = np.repeat(np.arange(len(parts)), [len(members) for members, _ in parts])
    members = np.concatenate([members for members, _ in parts])
    shares = np.concatenate([share for _, share in parts])
    best = np.zeros(len(members), bool)
    order = np.lexsort((clusters, -shares, members))
    best[order[np.flatnonzero(np.diff(members[order], prepend=-1))]] = True
    return SoftClusters(clusters, members, shares, best, n_components)


def _assign(rows: FloatMatrix, mixture: Mixture, threshold: float) -> tuple[IntVector, IntVector, NDArray[np.float32]]:
    clusters, members, shares = [], [], []
    for first in range(0, len(rows), _BLOCK_ROWS):
        posterior, _ = _posterior(rows[first : first + _BLOCK_ROWS], mixture.weights, mixture.means, mixture.variances)
        keep = posterior >= threshold
        keep[np.arange(len(posterior)), posterior.argmax(axis=1)] = True
        at, cluster = np.nonzero(keep)
        clusters.append(cluster.astype(np.int64))
        members.append(at.astype(np.int64) + first)
        shares.append(posterior[at, cluster].astype(np.float32))
    return np.concatenate(clusters), np.concatenate(members), np.concatenate(shares)


def _posterior(
    block: FloatMatrix, weights: FloatVector, means: FloatMatrix, variances: FloatMatrix
) -> tuple[FloatMatrix, NDArray[np.float32]]:
    """Return ((b, k) responsibilities, (b,) log densities)."""
    precision = 1.0 / variances
    constant = (
        np.log(weights)
        - 0.5 * np.log(variances, dtype=np.float64).sum(axis=1)
        - 0.5 * block.shape[1] * np.log(2 * np.pi)
        - 0.5 * (means.astype(np.float64) ** 2 * precision).sum(axis=1)
    )
    log_joint = (block * block) @ (-0.5 * precision).T
    log_joint += block @ (means * precision).T
    log_joint += constant.astype(np.float32)
    top = log_joint.max(axis=1, keepdims=True)
    log_joint -= top
    np.exp(log_joint, out=log_joint)
    total = log_joint.sum(axis=1, keepdims=True)
    log_joint /= total
    return log_joint, (top + np.log(total))[:, 0]


def _spread_start(rows: FloatMatrix, k: int, rng: np.random.Generator) -> tuple[FloatMatrix, float]:
    """Return k rows as first means, and the variance of the rows around the nearest of them: greedy k-means++.

    Each mean is the best of a few rows drawn with a chance by their squared distance to the means before, so that
    no group far from the others is left without one.
    """
    chosen = [int(rng.integers(len(rows)))]
    norms = np.einsum("ij,ij->i", rows, rows)
    nearest = np.maximum(norms - 2.0 * (rows @ rows[chosen[0]]) + norms[chosen[0]], 0.0)
    nearest[chosen[0]] = 0.0
    n_drawn = 2 + int(np.log(k))
    for _ in range(1, k):
        heights = np.cumsum(nearest, dtype=np.float64)
        if heights[-1] <= 0:  # only copies of the chosen rows are left
            free = np.setdiff1d(np.arange(len(rows)), chosen)
            chosen.append(int(free[0]))
            continue
        drawn = np.searchsorted(heights, rng.random(n_drawn) * heights[-1], side="right")
        distances = rows[drawn] @ rows.T
        distances *= -2.0
        distances += norms
        distances += norms[drawn][:, None]
        np.clip(distances, 0.0, nearest, out=distances)
        distances[np.arange(n_drawn), drawn] = 0.0
        best = int(distances.sum(axis=1, dtype=np.float64).argmin())
        chosen.append(int(drawn[best]))
        nearest = distances[best]
    return rows[chosen], float(nearest.mean(dtype=np.float64)) / rows.shape[1]
