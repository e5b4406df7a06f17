"""The CPU's kernels where the contract leaves them free: blocks of rows, threads, levels of a large graph."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from hirag_dist.compute.kernels import CpuKernels


def test_pca_does_not_depend_on_where_a_block_ends() -> None:
    """8,192 rows are a block; the same rows behind another block have the same scores."""
    random = np.random.default_rng(0)
    head = random.normal(size=(8192, 8)).astype(np.float32)
    both = np.concatenate([head, head])
    one, two = CpuKernels().pca(head, 3, 0), CpuKernels().pca(both, 3, 0)
    assert np.abs(two[8192:] - two[:8192]).max() < 1e-5
    assert np.abs(np.abs(two[:8192]) - np.abs(one)).max() < 1e-3


def test_pca_has_the_same_bits_whenever_it_is_run() -> None:
    vectors = np.random.default_rng(1).normal(size=(9000, 32)).astype(np.float32)
    with threadpool_limits(1):
        assert CpuKernels().pca(vectors, 8, 0).tobytes() == CpuKernels().pca(vectors, 8, 99).tobytes()
