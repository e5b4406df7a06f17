"""Contract of Embedder: run on the hashing one, in process and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.llm.endpoints.openai_client import EndpointSettings
from hirag_dist.llm.endpoints.openai_embeddings import OpenAiEmbedder
from hirag_dist.protocols import Embedder
from hirag_dist.testing.simulator import Simulator, SimulatorOptions

TEXTS = ["a miser in London", "the clerk of a miser", "", "café 東京 🙂", "   ", "a miser in London", "x" * 20_000]
DIM = 64


@pytest.fixture(params=["hashing", "openai", "openai without base64"])
async def embedder(request: pytest.FixtureRequest) -> AsyncIterator[Embedder]:
    if request.param == "hashing":
        yield HashingEmbedder(dim=DIM)
        return
    extra = {"encoding_format": "float"} if "without" in request.param else {}
    async with Simulator(SimulatorOptions(listen="127.0.0.1:0", dim=DIM)) as simulator:
        settings = EndpointSettings(
            "simulated", simulator.base_url, "", "hashing", first_token_timeout_s=20.0, batch_size=3, extra_body=extra
        )
        made = OpenAiEmbedder(settings, DIM, lambda text: 1, lambda text, n_tokens: text)
        yield made
        await made.close()


async def test_rows_are_of_unit_length_and_empty_texts_are_zeros(embedder: Embedder) -> None:
    rows = await embedder.embed(TEXTS)
    assert rows.shape == (len(TEXTS), DIM)
    assert rows.dtype == np.float32
    expected = [1.0 if text.strip() else 0.0 for text in TEXTS]
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), expected, atol=1e-6)
    np.testing.assert_allclose(rows, await HashingEmbedder(dim=DIM).embed(TEXTS), atol=1e-6)
    assert embedder.dim == DIM
    assert embedder.name


async def test_is_the_same_in_any_company_and_at_any_time(embedder: Embedder) -> None:
    rows = await embedder.embed(TEXTS)
    np.testing.assert_array_equal(rows[0], rows[5])
    lists = [TEXTS, *([text] for text in TEXTS)]
    together, *alone = await asyncio.gather(*map(embedder.embed, lists))
    np.testing.assert_array_equal(together, rows)
    np.testing.assert_array_equal(np.concatenate(alone), rows)


def test_hashing_puts_near_what_is_written_alike() -> None:
    embedder = HashingEmbedder()

    def similarity(one: str, other: str) -> float:
        first, second = embedder.embed_now([one, other])
        return float(first @ second)

    assert similarity("word embedding", "Word Embeddings") > 0.8
    assert similarity("honey bee colony", "bee colonies") > 0.6
    assert similarity("孙悟空", "悟空") > 0.5
    assert abs(similarity("interest rate of a bank", "lattice gauge theory")) < 0.2
    assert similarity("the history of the bee", "a history with a bee") > 0.6
    row, alike, other = (
        each.embed_now([text]).tobytes()
        for each, text in ((embedder, "honey bee"), (embedder, "Honey  BEE"), (HashingEmbedder(seed=1), "honey bee"))
    )
    assert row == alike != other
