"""Questions are embedded together, once; calls that come together leave together, and none is harmed by another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from hirag_dist.errors import ModelUnavailable, RequestRejected
from hirag_dist.retrieval.question_embedding import MicroBatcher, QuestionEmbedder
from hirag_dist.types import FloatMatrix


class Lengths:
    """A text's vector is its length; it answers on release, and refuses chosen texts."""

    name = "lengths"
    dim = 2

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.refused = ""
        self.down = False
        self.closed = False

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        self.asked.append(list(texts))
        await self.open.wait()
        if self.down:
            raise ModelUnavailable("down")
        if self.refused in texts:
            raise RequestRejected("no such talk")
        return np.array([[len(text), 0] for text in texts], np.float32)

    async def close(self) -> None:
        self.closed = True


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def first(questions: QuestionEmbedder, text: str) -> float:
    return float((await questions.embed([text]))[0, 0])


async def test_a_question_is_embedded_once_however_it_is_spaced() -> None:
    inner = Lengths()
    questions = QuestionEmbedder(inner)
    assert (questions.name, questions.dim) == ("lengths", 2)
    for text in ("Who is  Ahab?", " Who is Ahab?\n", "Who is Ahab?"):
        assert await first(questions, text) == len("Who is Ahab?")
    composed, decomposed = "é?", "e\u0301?"
    assert await first(questions, composed) == await first(questions, decomposed) == 2
    assert inner.asked == [["Who is Ahab?"], ["é?"]]
    assert (questions.hits, questions.misses) == (3, 2)


async def test_the_least_asked_is_forgotten() -> None:
    inner = Lengths()
    questions = QuestionEmbedder(inner, max_cached=2)
    for text in ("a", "bb", "a", "ccc", "a", "bb"):
        await questions.embed([text])
    assert inner.asked == [["a"], ["bb"], ["ccc"], ["bb"]]


async def test_a_text_that_is_refused_fails_alone() -> None:
    inner = Lengths()
    inner.open.clear()
    inner.refused = "bad"
    questions = QuestionEmbedder(inner)
    asked = [asyncio.create_task(first(questions, text)) for text in ("a", "bb", "good", "bad", "better")]
    await settle()
    inner.open.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(each) for each in results] == ["1.0", "2.0", "4.0", "no such talk", "6.0"]


class Door:
    """Doubles numbers when it is let."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.open = asyncio.Event()
        self.fault: Exception | None = None

    async def run(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        await self.open.wait()
        if self.fault is not None:
            raise self.fault
        return [2 * item for item in items]


async def test_what_comes_meanwhile_goes_together() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 3)
    asked = [asyncio.create_task(joined.submit(number)) for number in range(6)]
    await settle()
    assert door.calls == [[0]]
    door.open.set()
    assert await asyncio.gather(*asked) == [0, 2, 4, 6, 8, 10]
    assert door.calls == [[0], [1, 2, 3], [4, 5]]


async def test_several_calls_at_a_time() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 8, max_calls=2)
    asked = [asyncio.create_task(joined.submit(number)) for number in range(4)]
    await settle()
    assert door.calls == [[0], [1]]
    door.open.set()
    await asyncio.gather(*asked)
    assert door.calls == [[0], [1], [2, 3]]


async def test_a_failure_is_told_to_those_of_its_call_alone() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 8)
    first = asyncio.create_task(joined.submit(1))
    await settle()
    door.fault = ValueError("no")
    door.open.set()
    with pytest.raises(ValueError, match="no"):
        await first
    door.fault = None
    assert await joined.submit(2) == 4


async def test_who_is_cancelled_while_waiting_is_not_sent() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 8)
    asked = [asyncio.create_task(joined.submit(number)) for number in range(4)]
    await settle()
    asked[2].cancel()
    await settle()
    door.open.set()
    assert await asyncio.gather(*asked, return_exceptions=True) != []
    assert door.calls == [[0], [1, 3]]
    assert [asked[number].result() for number in (0, 1, 3)] == [0, 2, 6]


async def test_who_is_cancelled_under_way_leaves_the_others_alone() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 8)
    asked = [asyncio.create_task(joined.submit(number)) for number in range(3)]
    await settle()
    asked[0].cancel()
    await settle()
    door.open.set()
    assert await asyncio.gather(*asked[1:]) == [2, 4]
    assert asked[0].cancelled()


async def test_closing_waits_for_what_is_under_way() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 8)
    asked = [asyncio.create_task(joined.submit(number)) for number in range(2)]
    await settle()
    closing = asyncio.create_task(joined.close())
    await settle()
    assert not closing.done()
    door.open.set()
    await closing
    assert asked[0].result() == 0
    await settle()
    assert asked[1].cancelled()
    assert door.calls == [[0]]
