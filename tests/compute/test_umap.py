"""UMAP where umap-learn is installed, and what is said where it is not."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hirag_dist.composition.build import resolve
from hirag_dist.compute.cpu import CpuKernels
from hirag_dist.compute.umap import require_umap
from hirag_dist.config.model import Config
from hirag_dist.errors import BackendUnavailable
from tests.core.planted_rows import blobs


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)


@pytest.mark.usefixtures("without")
def test_where_it_is_missing_the_message_says_what_to_install() -> None:
    with pytest.raises(BackendUnavailable, match=r"pip install hirag_dist\[umap\]"):
        require_umap()
    with pytest.raises(BackendUnavailable, match="umap-learn"):
        CpuKernels().umap(np.zeros((20, 4), np.float32), 2, 0)


@pytest.mark.usefixtures("without")
def test_a_build_that_needs_it_does_not_start_without_it() -> None:
    with pytest.raises(BackendUnavailable, match=r"clustering\.reduction: umap"):
        resolve(Config.model_validate({"clustering": {"reduction": "umap"}}))


def test_neighbours_stay_together_and_the_seed_decides() -> None:
    pytest.importorskip("umap")
    rows, labels = blobs(5, 30, 12, seed=2, spread=0.1)
    found = CpuKernels().umap(rows, 3, 0)
    assert found.shape == (150, 3)
    assert found.dtype == np.float32
    apart = np.linalg.norm(found[:, None] - found[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert np.mean(labels[apart.argmin(axis=1)] == labels) > 0.95
    assert found.tobytes() == CpuKernels().umap(rows, 3, 0).tobytes()
    assert found.tobytes() != CpuKernels().umap(rows, 3, 1).tobytes()


def test_what_is_not_finite_counts_as_zero() -> None:
    pytest.importorskip("umap")
    rows, _ = blobs(3, 10, 6, seed=2, spread=0.1)
    zero = rows.copy()
    rows[4], zero[4] = np.nan, 0
    assert np.array_equal(CpuKernels().umap(rows, 2, 0), CpuKernels().umap(zero, 2, 0))
