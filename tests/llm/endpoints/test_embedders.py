"""The embedders that need no server."""

from __future__ import annotations

import numpy as np

from hirag_dist.llm.endpoints.hashing import HashingEmbedder

TEXTS = [
    "honey bee colony",
    "",
    "孙悟空大闹天宫",
    "   ",
    "A queen cell is built by the workers.",
    "!?",
    "пчелиная матка",
]


def similarity(embedder: HashingEmbedder, one: str, other: str) -> float:
    first, second = embedder.embed_now([one, other])
    return float(first @ second)


async def test_rows_are_of_unit_length_or_zero() -> None:
    rows = await HashingEmbedder(dim=64).embed(TEXTS)
    assert rows.dtype == np.float32
    assert rows.shape == (7, 64)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 0, 1, 0, 1, 0, 1], atol=1e-6)


async def test_a_text_has_the_same_bits_in_any_company() -> None:
    many = [f"{text} number{number}" for number in range(40) for text in TEXTS]
    together = await HashingEmbedder().embed(many)
    apart = HashingEmbedder()
    for row, text in zip(together[::-1], many[::-1], strict=True):
        assert (await apart.embed([text]))[0].tobytes() == row.tobytes()


def test_is_pinned() -> None:
    row = HashingEmbedder(dim=16).embed_now(["honey bee"])[0]
    again = HashingEmbedder(dim=16).embed_now(["Honey  BEE"])[0]
    assert row.tobytes() == again.tobytes()
    assert HashingEmbedder(dim=16, seed=1).embed_now(["honey bee"])[0].tobytes() != row.tobytes()


def test_what_is_written_alike_is_near_and_the_rest_is_not() -> None:
    embedder = HashingEmbedder()
    assert similarity(embedder, "word embedding", "Word Embeddings") > 0.8
    assert similarity(embedder, "honey bee colony", "bee colonies") > 0.6
    assert similarity(embedder, "孙悟空", "悟空") > 0.5
    assert abs(similarity(embedder, "interest rate of a bank", "lattice gauge theory")) < 0.2
    assert similarity(embedder, "the history of the bee", "a history with a bee") > 0.6
