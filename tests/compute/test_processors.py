"""Scores of a layer under the kernels of several kinds of processors."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from hirag_dist.compute.kernels import CpuKernels

SCORES = """
import hashlib
import numpy as np
from hirag_dist.compute.kernels import CpuKernels

rng = np.random.default_rng(0)
rows = (rng.normal(size=(20, 384))[rng.integers(20, size=6000)] + rng.normal(size=(6000, 384))).astype(np.float32)
rows /= np.linalg.norm(rows, axis=1, keepdims=True)
print(hashlib.sha256(CpuKernels().pca(rows, 64, 0).tobytes()).hexdigest())
"""


@pytest.mark.integration
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kinds of processors are those of x86-64")
def test_scores_have_the_same_bits_on_kinds_of_processors() -> None:
    found = set()
    for kind in ("Sandybridge", "Haswell"):
        environ = os.environ | {"OPENBLAS_CORETYPE": kind, "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-c", SCORES], env=environ, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1


def test_pca_has_the_same_bits_whenever_it_is_run() -> None:
    vectors = np.random.default_rng(1).normal(size=(9000, 32)).astype(np.float32)
    with threadpool_limits(1):
        assert CpuKernels().pca(vectors, 8, 0).tobytes() == CpuKernels().pca(vectors, 8, 99).tobytes()
