"""Overlaps of groups are those of sets; rows go to partitions by a hash of their key that is the same everywhere."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hirag_dist.core.clustering.anchored import group_sums
from hirag_dist.core.groupby import bounds_of, by_partition, partitions_of, shared_counts
from hirag_dist.types import IntVector


def test_sums_are_those_of_a_product() -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(300, 9)).astype(np.float32)
    groups = np.sort(random.integers(0, 20, 700))
    groups[groups == 7] = 8  # an empty group
    rows = random.integers(0, 300, 700)
    bounds = bounds_of(groups, 21)
    product = csr_array((np.ones(700, np.float32), rows, bounds), shape=(21, 300)) @ vectors
    assert np.array_equal(group_sums(vectors, rows, bounds), product)


def test_overlaps_are_those_of_sets() -> None:
    random = np.random.default_rng(1)
    one, other = (random.random((12, 40)) < share for share in (0.1, 0.3))
    one[3] = other[0] = False  # empty groups

    def pairs(holds: NDArray[np.bool_]) -> tuple[IntVector, IntVector]:
        groups, items = random.permutation(np.argwhere(holds)).T
        return groups, items

    overlaps = [(own, of, int((one[own] & other[of]).sum())) for own in range(12) for of in range(12)]
    found = zip(*(each.tolist() for each in shared_counts(*pairs(one), *pairs(other))), strict=True)
    assert list(found) == [each for each in overlaps if each[2]]


MASK = (1 << 64) - 1
KEYS = ["", "a", "b", "Ebenezer Scrooge", "straße", "画家", *("x" * n for n in (7, 8, 9, 16, 255, 256, 257, 700))]


def mixed(value: int) -> int:
    """splitmix64, as published, on Python integers."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def slow_hash(key: bytes) -> int:
    found = mixed(len(key))
    for at in range(0, min(len(key), 256), 8):
        found = mixed(found ^ int.from_bytes(key[at : at + 8], "little"))
    return found


def test_strings_against_the_slow_hash() -> None:
    expected = [slow_hash(key.encode()) % 1000 for key in KEYS]
    assert partitions_of(pa.array(KEYS), 1000).tolist() == expected
    assert partitions_of(pa.array([key.encode() for key in KEYS]), 1000).tolist() == expected
    sliced = pa.chunked_array([pa.array(["before", *KEYS[:5]]).slice(1), pa.array([*KEYS[5:], "after"]).slice(0, 9)])
    assert partitions_of(sliced, 1000).tolist() == expected


def test_integers_against_the_slow_hash() -> None:
    numbers = [0, 1, -1, 7, 2**62, -(2**63)]
    expected = [mixed(number & MASK) % 1000 for number in numbers]
    assert partitions_of(pa.array(numbers, pa.int64()), 1000).tolist() == expected
    assert partitions_of(pa.array(numbers[:4], pa.int32()), 1000).tolist() == expected[:4]


def test_these_partitions_never_change() -> None:
    """Half a shuffle may be of an earlier version: where this must change, HASH_VERSION does."""
    assert partitions_of(pa.array(["scrooge", "marley", "fezziwig"]), 100).tolist() == [5, 69, 20]
    assert partitions_of(pa.array([1, 2, 3]), 100).tolist() == [65, 10, 53]


def test_nulls_go_together() -> None:
    assert len(set(partitions_of(pa.array([None, "", None]), 1000).tolist())) == 1
    assert len(set(partitions_of(pa.array([None, 0, None], pa.int32()), 1000).tolist())) == 1


def test_rows_keep_their_order_within_a_partition() -> None:
    table = pa.table({"key": [f"k{n % 7}" for n in range(100)], "n": list(range(100))})
    ordered, bounds = by_partition(table, "key", 5)
    home = partitions_of(table["key"], 5)
    assert bounds[0] == 0
    assert bounds[-1] == 100
    for number in range(5):
        rows = ordered.slice(bounds[number], bounds[number + 1] - bounds[number])
        assert rows["n"].to_pylist() == [n for n in range(100) if home[n] == number]
