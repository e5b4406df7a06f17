"""The embedders that need no server."""

from __future__ import annotations

from hirag_dist.llm.endpoints.hashing import HashingEmbedder


def similarity(embedder: HashingEmbedder, one: str, other: str) -> float:
    first, second = embedder.embed_now([one, other])
    return float(first @ second)


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
