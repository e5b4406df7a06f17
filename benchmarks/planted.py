"""Planted vectors: overlapping clusters with heavy-tailed sizes, in a spectrum that falls as real embeddings' does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 8192
MEAN_SIZE = 16.0
LARGEST_SHARE = 0.02  # of all rows in one cluster, at most
IN_TWO = 0.15  # of rows that belong to two clusters of a topic
CLUSTERS_A_TOPIC = 30
TOPIC_SHARE = 0.5  # of the variance of centres
DECAY = 0.75  # the j-th axis has variance j^-0.75: that of recorded embeddings of entities
SPREAD = 0.25  # of a cluster's rows, in units of the spread of the centres


@dataclass(frozen=True, slots=True)
class Planted:
    """Memory-mapped vectors and the clusters that they were made from, one entry a membership."""

    vectors: NDArray[np.float32]
    clusters: NDArray[np.int64]
    rows: NDArray[np.int64]


def plant(folder: Path, n_rows: int, dim: int, seed: int = 0, spread: float = SPREAD) -> Planted:
    """Write unit vectors to a file of the folder, block by block, and return them mapped."""
    rng = np.random.default_rng(seed)
    sizes = _sizes(n_rows, rng)
    n_clusters = len(sizes)
    axes = np.arange(1, dim + 1, dtype=np.float32) ** np.float32(-DECAY / 2)
    topic_of = np.arange(n_clusters) // CLUSTERS_A_TOPIC
    topics = rng.standard_normal((int(topic_of[-1]) + 1, dim), np.float32)
    centres = rng.standard_normal((n_clusters, dim), np.float32)
    centres *= np.float32(np.sqrt(1 - TOPIC_SHARE))
    centres += np.float32(np.sqrt(TOPIC_SHARE)) * topics[topic_of]
    centres *= axes
    first = rng.permutation(np.repeat(np.arange(n_clusters), sizes))
    beside = topic_of[first] * CLUSTERS_A_TOPIC + rng.integers(0, CLUSTERS_A_TOPIC, n_rows)
    second = np.where((rng.random(n_rows) < IN_TWO) & (beside < n_clusters), beside, first)
    path = folder / "vectors.npy"
    out = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, dim))
    for start in range(0, n_rows, BLOCK_ROWS):
        part = slice(start, min(start + BLOCK_ROWS, n_rows))
        block = (centres[first[part]] + centres[second[part]]) / 2
        block += np.float32(spread) * axes * rng.standard_normal(block.shape, np.float32)
        block /= np.linalg.norm(block, axis=1, keepdims=True)
        out[part] = block
    out.flush()
    del out
    numbers = np.arange(n_rows)
    two = second != first
    return Planted(
        np.load(path, mmap_mode="r"),
        np.concatenate([first, second[two]]),
        np.concatenate([numbers, numbers[two]]),
    )


def _sizes(n_rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sizes of a Pareto tail, which add up to the rows."""
    largest = max(8.0, LARGEST_SHARE * n_rows)
    drawn = np.minimum(MEAN_SIZE / 2 * (1 + rng.pareto(2.0, n_rows)), largest)
    sizes = np.maximum(drawn.astype(np.int64), 2)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), n_rows)) + 1]
    sizes[-1] -= int(sizes.sum()) - n_rows
    return sizes[sizes > 0]
