"""Hidden documents leave no trace through the service, which alone decides on the labels of a caller."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import InvalidQuery
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.retrieval.map_reduce import MAP_REDUCE
from hirag_dist.retrieval.search import MODES
from hirag_dist.service.hot_swap import SnapshotSwapper
from hirag_dist.types import Answer, Query, Retrieval
from tests.leaky_builds import HIDDEN, QUESTIONS, Indexes, all_text, corpus


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Indexes:
    return Indexes(tmp_path_factory)


Start = Callable[..., Awaitable[Any]]


@pytest.fixture
async def served(made: Indexes, start: Start, tmp_path: Path) -> AsyncIterator[Any]:
    """Clients of one service by their tokens: of a caller who holds nothing, and of one who may see the secret."""
    lines = ["callers:"]
    for name, labels in (("visitor", "[]"), ("agent", "[secret]")):
        digest = hashlib.sha256(name.encode()).hexdigest()
        lines += [f"  {name}:", f'    tokens: [{{sha256: "{digest}"}}]', f"    labels: {labels}"]
    (tmp_path / "callers.yaml").write_text("\n".join(lines))
    engine = made(corpus(1))

    async def opened() -> QueryEngine:
        return engine

    swapper = SnapshotSwapper(opened, lambda: engine.info.snapshot_id, poll_s=3600)
    service = await start(swapper, callers_file=str(tmp_path / "callers.yaml"), map_reduce=True)
    clients = {name: AsyncHiragClient(service.address, token=name) for name in ("visitor", "agent")}
    yield clients
    for client in clients.values():
        await client.close()


@pytest.mark.parametrize("mode", MODES)
async def test_no_trace_through_the_service(served: dict[str, AsyncHiragClient], mode: str) -> None:
    for question in QUESTIONS:
        # A caller cannot give itself a reach: what it sends has none, and the service's word counts.
        asked = Query(question, mode, top_n=40, reach=None)
        assert HIDDEN not in all_text(await served["visitor"].retrieve(asked))
        assert HIDDEN not in all_text(await served["visitor"].answer(asked))
        assert HIDDEN in all_text(await served["agent"].retrieve(asked))
        wished = await served["visitor"].retrieve(replace(asked, labels=("secret",)))
        assert not wished.context_refs


@pytest.mark.parametrize("mode", MAP_REDUCE)
async def test_no_trace_in_answers_from_all_of_the_corpus(served: dict[str, AsyncHiragClient], mode: str) -> None:
    for question in QUESTIONS:
        asked = Query(question, mode)
        parts = [part async for part in served["visitor"].answer_stream(asked)]
        assert not [part for part in parts if isinstance(part, Retrieval | Answer) and HIDDEN in all_text(part)]
        planned, read, *_, answer = parts
        assert isinstance(planned, Retrieval)
        assert isinstance(read, Retrieval)
        assert isinstance(answer, Answer)
        assert planned.map_work.parts == read.map_work.calls  # type: ignore[union-attr]
        assert answer.retrieval == read
        assert HIDDEN in all_text(await served["agent"].answer(asked))
        with pytest.raises(InvalidQuery, match=f"mode: {mode} reads all there is"):
            await served["visitor"].retrieve(asked)


async def test_the_service_describes_what_a_caller_may_know(served: dict[str, AsyncHiragClient]) -> None:
    visitor, agent = await served["visitor"].describe(), await served["agent"].describe()
    assert visitor.counts["documents"] == 20
    assert agent.counts["documents"] == 30
    assert "usage" not in visitor.counts
