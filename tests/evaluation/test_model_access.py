"""Vectors of questions: made once however many ask, by who asks; tried again where that one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from hirag_dist.errors import RequestRejected
from hirag_dist.evaluation.model_access import QuestionVectors
from hirag_dist.types import FloatMatrix


class Lengths:
    """Vectors of one number, the text's length; waits to be released."""

    name, dim = "lengths", 1

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self.failures: list[Exception] = []

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        self.asked += texts
        await self.go.wait()
        if self.failures:
            raise self.failures.pop()
        return np.array([[len(text)] for text in texts], np.float32)


async def test_equal_questions_are_embedded_once() -> None:
    inner = Lengths()
    vectors = QuestionVectors(inner)
    waiting = [asyncio.create_task(vectors.embed([text])) for text in ("a  b", "a b", " a b ", "abc d")]
    await asyncio.sleep(0)
    inner.go.set()
    assert [float(rows[0, 0]) for rows in await asyncio.gather(*waiting)] == [3, 3, 3, 5]
    await vectors.embed(["a b"])
    assert inner.asked == ["a b", "abc d"]


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_who_waits_tries_where_the_first_one(how: str) -> None:
    inner = Lengths()
    vectors = QuestionVectors(inner)
    first, second = (asyncio.create_task(vectors.embed(["ab"])) for _ in range(2))
    await asyncio.sleep(0)
    if how == "fails":
        inner.failures.append(RequestRejected("no"))
    else:
        first.cancel()
    inner.go.set()
    with pytest.raises(RequestRejected if how == "fails" else asyncio.CancelledError):
        await first
    assert float((await second)[0, 0]) == 2
    assert inner.asked == ["ab", "ab"]


async def test_only_so_many_are_remembered() -> None:
    inner = Lengths()
    inner.go.set()
    vectors = QuestionVectors(inner, remembered=2)
    for text in ("a", "b", "c", "c", "a"):
        await vectors.embed([text])
    assert inner.asked == ["a", "b", "c", "a"]
