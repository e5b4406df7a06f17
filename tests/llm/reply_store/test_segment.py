"""A filter never denies a key that is there, and seldom admits one that is not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hirag_dist.llm.reply_store.segment import FilterBank, make_filter


@pytest.mark.parametrize("sizes", [[1], [3, 1000], [1, 50, 4096, 7, 0x7FFF]])
def test_every_key_is_found_in_its_filter(sizes: list[int]) -> None:
    chance = random.Random(1)
    keys = [[chance.randbytes(20) for _ in range(size)] for size in sizes]
    bank = FilterBank([make_filter(b"".join(each)) for each in keys])
    for number, each in enumerate(keys):
        assert all(number in bank.may_hold(key) for key in each[:300])
        assert np.array_equal(bank[number], make_filter(b"".join(each)))


def test_few_keys_are_looked_for_in_vain_and_a_key_takes_under_two_bytes() -> None:
    chance = random.Random(2)
    filters = [make_filter(chance.randbytes(20 * 4000)) for _ in range(10)]
    assert sum(each.nbytes for each in filters) < 2 * 40_000
    bank = FilterBank(filters)
    errors = sum(len(bank.may_hold(chance.randbytes(20))) for _ in range(2000))
    assert errors < 2000 * 10 / 300
