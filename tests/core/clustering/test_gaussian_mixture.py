"""Mixtures against the formulas, cell by cell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp

from hirag_dist.core.clustering.gaussian_mixture import BLOCK_ROWS, assign, memberships, standardised
from hirag_dist.types import LabelledCell, Memberships, Mixture
from tests.core.planted_rows import Rows, blobs, densities, expected_mixture, fitted_mixture, labelled_mixture


def test_standardise_centres_and_scales_by_one_factor() -> None:
    rows = np.array([[0.0, 0], [2, 200]], np.float32)
    scaled = standardised(rows)[0]
    assert scaled.mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert float(np.mean(scaled**2)) == pytest.approx(1, rel=1e-5)
    assert scaled[1, 1] / scaled[1, 0] == pytest.approx(100, rel=1e-4), "directions are kept"
    assert (standardised(np.full((3, 2), np.nan, np.float32))[0] == 0).all()


def cells(seed: int) -> list[LabelledCell]:
    """Cells of many sizes, in their own scale and place, with rows that are at home elsewhere."""
    random = np.random.default_rng(seed)
    found = []
    for n_groups, per_group in ((1, 1), (1, 9), (3, 20), (4, 30), (12, 20), (7, 55)):
        rows, labels = blobs(n_groups, per_group, 6, seed=seed + n_groups, spread=5.0)
        is_home = labels % 3 < 2
        found.append(
            LabelledCell(rows * np.float32(10) + 3, labels, is_home | ~is_home.any() | (random.random() < 0.3))
        )
    return found


def check_memberships(found: Memberships, cell: LabelledCell, threshold: float) -> None:
    """Check one cell's memberships against mixtures straight from the formulas."""
    rows, _, scale = standardised(cell.rows)
    mixture = expected_mixture(rows, labelled_mixture(rows, cell.labels))
    shares = shares_of(rows, mixture)
    kept_shares = np.where((shares >= threshold) | (shares == shares.max(axis=1, keepdims=True)), shares, 0)
    kept = kept_shares[cell.is_home].sum(axis=0) * 2 >= kept_shares.sum(axis=0)
    weight = mixture.weights[kept].sum()
    inside = replace(mixture, weights=mixture.weights[kept] / weight, means=mixture.means[kept])
    expected = shares_of(rows, inside)
    is_member = (expected >= threshold) | (expected == expected.max(axis=1, keepdims=True))
    assert found.n_components == kept.sum()
    members = set(zip(found.rows.tolist(), found.components.tolist(), strict=True))
    differing = members ^ set(zip(*(column.tolist() for column in np.nonzero(is_member)), strict=True))
    assert all(abs(expected[row, component] - threshold) < 1e-3 for row, component in differing)
    assert found.shares == pytest.approx(expected[found.rows, found.components], abs=2e-3)
    log_density = logsumexp(densities(rows, inside), axis=1) - rows.shape[1] * np.log(scale)
    evidence = np.log(len(rows) * weight) + log_density
    assert found.evidence == pytest.approx(evidence[found.rows], abs=5e-3)


def shares_of(rows: Rows, mixture: Mixture) -> NDArray[np.float64]:
    log_joint = densities(rows, mixture)
    return np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))


def test_memberships_of_cells_are_the_formulas() -> None:
    rows, labels = blobs(3, BLOCK_ROWS // 2, 4, seed=2, spread=4.0)  # several blocks, which are fitted as a whole
    for cell in [*cells(seed=4), LabelledCell(rows, labels, np.ones(len(rows), bool))]:
        check_memberships(memberships(cell, 0.1), cell, 0.1)


def test_an_assignment_holds_the_best_and_what_passes_the_threshold() -> None:
    rows = standardised(blobs(5, 40, 2, seed=4, spread=6.0)[0])[0]
    mixture = fitted_mixture(rows, 5, 0)
    shares = shares_of(rows, mixture)
    found = assign(np, rows, mixture, 0.2)
    expected = shares > 0.2
    expected[np.arange(len(rows)), shares.argmax(axis=1)] = True
    assert set(zip(found.rows.tolist(), found.components.tolist(), strict=True)) == set(
        zip(*(each.tolist() for each in np.nonzero(expected)), strict=True)
    )
    assert found.shares == pytest.approx(shares[found.rows, found.components], abs=1e-3)
    assert np.array_equal(assign(np, rows, mixture, 1.0).components, shares.argmax(axis=1))
    assert found.log_densities == pytest.approx(logsumexp(densities(rows, mixture), axis=1), abs=1e-3)


def test_no_responsibility_is_subnormal() -> None:
    """Some processors take tens of times as long for operations on such numbers."""
    rows = standardised(blobs(40, 30, 8, seed=4, spread=0.1)[0])[0]
    mixture = fitted_mixture(rows, 40, 0)
    found = assign(np, rows, mixture, 0.0)
    assert len(found.shares) == len(rows) * 40
    assert found.shares.min() > 1e-30
    assert found.shares.max() <= 1
