"""Questions are embedded together, once; calls that come together leave together, and none is harmed by another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from hirag_dist.errors import RequestRejected
from hirag_dist.retrieval.question_embedding import MicroBatcher, QuestionEmbedder
from hirag_dist.types import FloatMatrix


class Lengths:
    """A text's vector is its length; it answers on release, and refuses the text "bad"."""

    name = "lengths"
    dim = 2

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.open = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        self.asked.append(list(texts))
        await self.open.wait()
        if "bad" in texts:
            raise RequestRejected("no such talk")
        return np.array([[len(text), 0] for text in texts], np.float32)


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def first(questions: QuestionEmbedder, text: str) -> float:
    return float((await questions.embed([text]))[0, 0])


@pytest.fixture
def inner() -> Lengths:
    return Lengths()


async def test_a_question_is_embedded_once_however_it_is_spaced(inner: Lengths) -> None:
    inner.open.set()
    questions = QuestionEmbedder(inner)
    assert (questions.name, questions.dim) == ("lengths", 2)
    for text in ("Who is  Ahab?", " Who is Ahab?\n", "Who is Ahab?"):
        assert await first(questions, text) == len("Who is Ahab?")
    composed, decomposed = "é?", "e\u0301?"
    assert await first(questions, composed) == await first(questions, decomposed) == 2
    assert inner.asked == [["Who is Ahab?"], ["é?"]]
    assert (questions.hits, questions.misses) == (3, 2)


async def test_the_least_asked_is_forgotten(inner: Lengths) -> None:
    inner.open.set()
    questions = QuestionEmbedder(inner, max_cached=2)
    for text in ("a", "bb", "a", "ccc", "a", "bb"):
        await questions.embed([text])
    assert inner.asked == [["a"], ["bb"], ["ccc"], ["bb"]]


async def test_a_text_that_is_refused_fails_alone(inner: Lengths) -> None:
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

    async def submitted(self, joined: MicroBatcher[int, int], n: int) -> list[asyncio.Task[int]]:
        """Submit the first numbers, and let them get as far as the door."""
        asked = [asyncio.create_task(joined.submit(number)) for number in range(n)]
        await settle()
        return asked

    async def run(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        await self.open.wait()
        if self.fault is not None:
            raise self.fault
        return [2 * item for item in items]


@pytest.fixture
def door() -> Door:
    return Door()


async def test_what_comes_meanwhile_goes_together(door: Door) -> None:
    asked = await door.submitted(MicroBatcher(door.run, 3), 6)
    assert door.calls == [[0]]
    door.open.set()
    assert await asyncio.gather(*asked) == [0, 2, 4, 6, 8, 10]
    assert door.calls == [[0], [1, 2, 3], [4, 5]]


async def test_several_calls_at_a_time(door: Door) -> None:
    asked = await door.submitted(MicroBatcher(door.run, 8, max_calls=2), 4)
    assert door.calls == [[0], [1]]
    door.open.set()
    await asyncio.gather(*asked)
    assert door.calls == [[0], [1], [2, 3]]


async def test_a_failure_is_told_to_those_of_its_call_alone(door: Door) -> None:
    joined = MicroBatcher(door.run, 8)
    (failed,) = await door.submitted(joined, 1)
    door.fault = ValueError("no")
    door.open.set()
    with pytest.raises(ValueError, match="no"):
        await failed
    door.fault = None
    assert await joined.submit(2) == 4


@pytest.mark.parametrize(("cancelled", "sent"), [(2, [[0], [1, 3]]), (0, [[0], [1, 2, 3]])])
async def test_who_is_cancelled_while_waiting_is_not_sent_and_under_way_leaves_the_others_alone(
    door: Door, cancelled: int, sent: list[list[int]]
) -> None:
    asked = await door.submitted(MicroBatcher(door.run, 8), 4)
    asked.pop(cancelled).cancel()
    await settle()
    door.open.set()
    assert await asyncio.gather(*asked) == [2 * number for number in range(4) if number != cancelled]
    assert door.calls == sent


async def test_closing_waits_for_what_is_under_way(door: Door) -> None:
    joined = MicroBatcher(door.run, 8)
    asked = await door.submitted(joined, 2)
    closing = asyncio.create_task(joined.close())
    await settle()
    assert not closing.done()
    door.open.set()
    await closing
    assert asked[0].result() == 0
    await settle()
    assert asked[1].cancelled()
    assert door.calls == [[0]]
