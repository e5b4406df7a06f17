"""Questions are embedded together, once, and a failure affects only its own caller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from hirag_dist.errors import ModelUnavailable, RequestRejected
from hirag_dist.retrieval.question_embedding import QuestionEmbedder
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
