"""Retriever of LlamaIndex: what its base classes promise, and that no model of its own is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core import Settings
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.schema import MetadataMode, NodeRelationship, QueryBundle

import hirag_dist as hd
from hirag_dist.errors import InvalidQuery
from hirag_dist.integrations.llamaindex import HiragRetriever
from tests.service import fakes


@pytest.fixture(autouse=True)
def _no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A use of LlamaIndex's own models, which would be OpenAI's, fails."""

    def refuse(*_: Any) -> ChatMessage:
        raise AssertionError("a model of LlamaIndex is asked")

    for name in ("llm", "embed_model"):
        monkeypatch.setattr(type(Settings), name, property(refuse))


@pytest.fixture
def events() -> Iterator[list[str]]:
    """Names of LlamaIndex's instrumentation events."""
    seen: list[str] = []

    class Handler(BaseEventHandler):
        def handle(self, event: Any, **_: Any) -> None:
            seen.append(event.class_name())

    dispatcher, handler = get_dispatcher(), Handler()
    dispatcher.add_event_handler(handler)
    yield seen
    dispatcher.event_handlers.remove(handler)


def test_retrieve_and_its_events(address: str, events: list[str]) -> None:
    debug = LlamaDebugHandler(print_trace_on_end=False)
    retriever = HiragRetriever(address, similarity_top_k=2, callback_manager=CallbackManager([debug]))
    first, second = retriever.retrieve("Who lit the lamp?")
    assert (first.node_id, first.score, second.node_id, second.score) == ("k1", 1.0, "k2", 0.5)
    assert (first.text, first.node.start_char_idx, first.node.end_char_idx) == ("Text 1.", 0, 31)
    assert first.node.get_content(MetadataMode.LLM) == "title: Log 1\nuri: file:///log1.txt\n\nText 1."
    origin = first.node.relationships[NodeRelationship.SOURCE]
    assert (origin.node_id, origin.metadata) == ("d1", {"title": "Log 1", "uri": "file:///log1.txt"})
    assert first.node.ref_doc_id == "d1"
    said = first.metadata
    assert (said["year"], said["tags"], said["page"], said["level"]) == (1852, ["sea", "rock"], 7, "sources")
    assert events == ["RetrievalStartEvent", "RetrievalEndEvent"]
    assert len(debug.get_event_pairs(CBEventType.RETRIEVE)) == 1
    assert first.node.to_dict()["metadata"] == said  # plain values
    retriever.close()


async def test_aretrieve_with_levels_and_settings(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    retriever = HiragRetriever((await start(engine)).address, levels=("local", "global"), labels="a", filter="year > 1")
    found = await retriever.aretrieve(QueryBundle("q", embedding=[1.0]))  # of an embedder that is not the index's
    assert [(one.metadata["level"], one.node_id) for one in found] == [("local", "e1"), ("global", "c1")]
    assert found[0].node.source_node is None
    (query,) = engine.queries
    assert (query.question, query.labels, query.filter, query.vector) == ("q", ("a",), "year > 1", None)
    retriever.close()


def test_an_open_index(index: hd.Index) -> None:
    found = HiragRetriever(index, similarity_top_k=3).retrieve("What did Captain Reyes do in Lisbon?")
    assert len(found) == 3
    with pytest.raises(InvalidQuery):
        HiragRetriever(index).retrieve(" ")
