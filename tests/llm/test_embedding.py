"""Embeddings are paid once, a permit a request, and none that was sent is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hirag_dist.config.model import Config, EndpointConfig
from hirag_dist.errors import BudgetReached, ModelUnavailable, RequestRejected
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.embedding import LedgerEmbedder, PricedEmbedder, vector_key
from hirag_dist.llm.endpoints.factory import endpoint_settings
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.usage import ModelUsage, UsageMeter
from hirag_dist.storage.store import Store
from tests.llm.calls import Hold, Lengths, at_once, by_length, calls


def embedder(store: Store | None, inner: Lengths, **limits: Any) -> LedgerEmbedder:
    """An embedder that costs a dollar a token; keywords are those of `calls`."""
    return LedgerEmbedder(PricedEmbedder("e", inner, 1e6), Ledger(store) if store else None, calls(**limits))


async def metered(embedding: LedgerEmbedder, texts: Sequence[str]) -> ModelUsage:
    """Return the metered usage of embedding texts."""
    meter = UsageMeter()
    await embedding.with_context(CallContext(meter)).embed(texts)
    return next(iter(meter.uses.values()))


async def records(store: Store, embedding: LedgerEmbedder, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the durable records of texts."""
    keys = [vector_key(embedding.name, embedding.dim, text) for text in texts]
    found = await Ledger(store).get_many(keys)
    return [found[key] for key in keys if key in found]


async def test_texts_are_asked_for_in_batches_and_equal_ones_once(store: Store) -> None:
    inner = Lengths()
    vectors = await embedder(store, inner).embed(["a", "bb", "a", "", "ccc", "dddd", "a"])
    assert vectors.dtype == np.float32
    assert vectors[:, 0].tolist() == [1, 2, 1, 0, 3, 4, 1]
    assert vectors[3].tolist() == [0, 0], "an empty text is a row of zeros, and not asked for"
    assert sorted(map(len, inner.calls)) == [1, 3]
    assert (await embedder(store, inner).embed([])).shape == (0, 2)


async def test_a_request_keeps_to_the_number_of_texts_and_of_tokens(store: Store) -> None:
    inner = Lengths()
    inner.batch_tokens = 10
    await embedder(store, inner).embed(["aaaaa", "bbbbb", "c", "d", "e", "f", "g" * 300, "h"])
    assert inner.calls == [["aaaaa", "bbbbb"], ["c", "d", "e"], ["f"], ["g" * 200], ["h"]]


async def test_a_permit_is_for_one_request(store: Store) -> None:
    under_way = most = 0

    async def count(texts: list[str]) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    inner = Lengths(count)
    inner.batch_tokens = 3
    embedding = embedder(store, inner, at_a_time=2)
    assert (await metered(embedding, ["a", "bb", "ccc", "d", "eee"])).calls == len(inner.calls) == 4
    assert most == 2


async def test_the_vectors_of_a_request_are_durable_while_others_are_under_way(store: Store) -> None:
    hold = Hold()
    inner = Lengths(lambda texts: hold(texts) if "dddd" in texts else None)
    embedding = embedder(store, inner)
    running = asyncio.ensure_future(embedding.embed(["a", "bb", "ccc", "dddd"]))
    await hold.arrived.wait()
    assert (await embedding.embed(["ccc"]))[0, 0] == 3, "who wants a text of an ended request need not wait"
    assert len(await records(store, embedding, ["a", "bb", "ccc", "dddd"])) == 3
    hold.go_on.set()
    assert (await running)[:, 0].tolist() == [1, 2, 3, 4]
    assert len(inner.calls) == 2


async def test_the_bill_is_the_endpoints(store: Store) -> None:
    embedding = embedder(store, Lengths(used=lambda texts: 20))
    use = await metered(embedding, ["a", "bb", "ccc"])
    assert (use.input_tokens, use.sent_tokens, use.cost_usd, use.sent_cost_usd) == (20, 20, 20.0, 20.0)
    kept = await records(store, embedding, ["a", "bb", "ccc"])
    assert [record["tokens"] for record in kept] == [3, 7, 10], "in proportion to 1 : 2 : 3, and 20 in all"
    again = await metered(embedder(store, Lengths()), ["a", "bb", "ccc"])
    assert (again.input_tokens, again.cost_usd, again.sent_tokens) == (20, 20.0, 0)


async def test_a_spending_limit_goes_by_what_the_endpoint_says_that_it_used(store: Store) -> None:
    inner = Lengths(used=lambda texts: 10 * sum(map(len, texts)))
    limited = embedder(store, inner, max_usd=75.0)  # a dollar a token
    await limited.embed(["abc"])
    await limited.embed(["de"])
    with pytest.raises(BudgetReached, match=r"\$50"):
        await limited.embed(["ghi"])  # 3 by our count, 30 as the endpoint counts
    assert (await limited.embed(["abc", "f"]))[:, 0].tolist() == [3, 1], "what is in the ledger costs nothing"
    assert inner.calls == [["abc"], ["de"], ["f"]]


async def test_a_call_that_was_sent_is_stored_and_billed_although_its_task_gave_up(store: Store) -> None:
    hold = Hold()
    meter = UsageMeter()
    metered = embedder(store, Lengths(hold, used=lambda texts: 7)).with_context(CallContext(meter))
    embedding = asyncio.ensure_future(metered.embed(["abc"]))
    await hold.arrived.wait()
    embedding.cancel()
    await asyncio.sleep(0)
    hold.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await embedding
    assert meter.spent() == (7, 7.0)
    again = Lengths()
    assert (await embedder(store, again).embed(["abc"]))[0, 0] == 3
    assert again.calls == []


@pytest.mark.parametrize("error", [ModelUnavailable("gone"), RequestRejected("wrong key", fatal=True)])
async def test_what_cannot_be_waited_out_rises(store: Store, error: Exception) -> None:
    def fail(texts: list[str]) -> None:
        raise error

    inner = Lengths(fail)
    with pytest.raises(type(error)) as caught:
        await embedder(store, inner, outage_timeout_s=0.0, sleep=at_once).embed(["a", "b"])
    assert "text" not in str(caught.value), "no text is to blame for it"
    assert len(inner.calls) == 1


async def test_batches_beside_a_failed_one_are_stored(store: Store) -> None:
    def fail_first(texts: list[str]) -> None:
        if "a" in texts:
            raise RequestRejected("wrong key", fatal=True)

    with pytest.raises(RequestRejected):
        await embedder(store, Lengths(fail_first)).embed(["a", "bb", "ccc", "dddd", "eeeee", "ffffff"])
    again = Lengths()
    await embedder(store, again).embed(["a", "bb", "ccc", "dddd", "eeeee", "ffffff"])
    assert again.calls == [["a", "bb", "ccc"]]


async def test_a_request_that_is_refused_for_its_size_is_halved(store: Store) -> None:
    def refuse_many(texts: list[str]) -> None:
        if len(texts) > 2:
            raise RequestRejected("too much")

    inner = Lengths(refuse_many)
    inner.batch_size = 5
    vectors = await embedder(store, inner).embed(["a", "bb", "ccc", "dddd", "eeeee"])
    assert vectors[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert [len(call) for call in inner.calls] == [5, 2, 3, 1, 2]


@pytest.mark.parametrize("kept", [True, False], ids=["with a ledger", "without"])
async def test_equal_questions_at_once_are_one_call(store: Store, kept: bool) -> None:
    hold = Hold()
    inner = Lengths(hold)
    embedding = embedder(store if kept else None, inner)
    asking = [asyncio.ensure_future(embedding.embed(["abc"])) for _ in range(40)]
    await hold.arrived.wait()
    hold.go_on.set()
    answers = await asyncio.gather(*asking)
    assert inner.calls == [["abc"]]
    assert {answer.tobytes() for answer in answers} == {by_length(["abc"]).tobytes()}


async def test_a_text_of_several_callers_is_on_every_bill_and_sent_once(store: Store) -> None:
    inner = Lengths()
    embedding = embedder(store, inner)
    uses = await asyncio.gather(*(metered(embedding, ["abc", text]) for text in ("d", "ee")))
    assert sorted(inner.calls) == [["abc", "d"], ["ee"]]
    assert [(use.input_tokens, use.cost_usd) for use in uses] == [(4, 4.0), (5, 5.0)]
    assert sum(use.sent_tokens for use in uses) == 6


async def test_vectors_are_used_bit_for_bit_as_they_are_stored(store: Store) -> None:
    bits = np.random.default_rng(7).integers(0, 2**32, (3, 2), np.uint32)
    bits[0] = 1, 0x80000000  # the smallest number there is, and minus zero
    odd = bits.view(np.float32)
    texts = ["a", "bb", "ccc"]
    embedding = embedder(store, Lengths(vectors=lambda texts: np.asfortranarray(odd)))
    used = await embedding.embed(texts)
    assert used.tobytes() == odd.tobytes()
    assert [record["vector"] for record in await records(store, embedding, texts)] == [row.tobytes() for row in odd]
    assert (await embedder(store, Lengths()).embed(texts)).tobytes() == odd.tobytes()


@pytest.mark.parametrize("record", [{}, {"vector": np.array([np.nan, 1], "<f4").tobytes()}])
async def test_a_stored_vector_that_cannot_be_used_is_asked_for_once_and_superseded(
    store: Store, record: dict[str, Any]
) -> None:
    damaged = Ledger(store)
    await damaged.put(vector_key("lengths", 2, "a"), record)
    await damaged.close()
    inner = Lengths()
    for _ in range(2):
        asking = embedder(store, inner)
        assert np.all(np.isfinite(await asking.embed(["a"])))
    assert inner.calls == [["a"]]


@pytest.mark.parametrize(("tpm", "most"), [(None, 250_000), (15_000, 3750), (1e9, 250_000)])
def test_a_request_holds_at_most_what_the_endpoint_grants(tpm: float | None, most: int) -> None:
    endpoint = EndpointConfig.model_validate({"base_url": "http://x/v1", "model": "m", "tpm": tpm})
    assert endpoint_settings("vectors", endpoint, Config()).batch_tokens == most
