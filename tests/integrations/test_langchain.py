"""The retriever of LangChain: the standard tests of langchain-tests, and what they leave out."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from typing import Any

import pytest
from langchain_core.retrievers import BaseRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests
from pydantic import ValidationError

import hirag_dist as hd
from hirag_dist.client import AsyncHiragClient, CallOptions, HiragClient
from hirag_dist.integrations.langchain import HiragRetriever
from hirag_dist.integrations.source import RetrievalSource, RetrieverSettings
from hirag_dist.types import Query
from tests.service import fakes


class TestStandardOfAnIndex(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _source(self, index: hd.Index) -> None:
        self.source = index

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return HiragRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"source": self.source}

    @property
    def retriever_query_example(self) -> str:
        return "What did Captain Reyes do in Lisbon?"


async def test_metadata_of_chunks(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    retriever = HiragRetriever(source=(await start(engine)).address, k=2)
    first, second = await retriever.ainvoke("Who lit the lamp?")
    assert (first.id, first.page_content, second.id) == ("k1", "Text 1.", "k2")
    assert first.metadata == {
        "level": "sources",
        "mode": "hirag",
        "snapshot_id": "s1",
        "score": 1.0,
        "chunk_id": "k1",
        "document_id": "d1",
        "title": "Log 1",
        "uri": "file:///log1.txt",
        "source": "file:///log1.txt",
        "start": 0,
        "end": 31,
        "year": 1852,
        "tags": ["sea", "rock"],
        "place": "p. 7",
        "page": 7,
        "places": [{"start": 0, "end": 30, "kind": "page", "display": "p. 7", "page": 7, "page_label": "vii"}],
    }
    retriever.close()


def test_copies_have_connections_of_their_own(address: str) -> None:
    retriever = HiragRetriever(source=address, k=1, token="t")
    with_connection = retriever.invoke("q")
    for made in (pickle.loads(pickle.dumps(retriever)), copy.deepcopy(retriever), retriever.model_copy(deep=True)):
        assert made.invoke("q") == with_connection
        made.close()
    retriever.close()


async def test_levels_as_documents(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    levels = ("global", "bridge", "local", "sources")
    retriever = HiragRetriever(source=(await start(engine)).address, levels=levels, k=1)
    found = await retriever.ainvoke("Who lit the lamp?")
    assert [(one.metadata["level"], one.id) for one in found] == [
        ("global", "c1"),
        ("bridge", "e1-e2"),
        ("local", "e1"),
        ("sources", "k1"),
    ]
    assert found[0].page_content == "The rock\n\nAll about it."
    assert found[1].page_content == "Lighthouse → Wärterin 灯台守\nWärterin 灯台守 – Lighthouse: keeps"
    assert found[1].metadata["relation_ids"] == ["r1"]
    assert found[2].page_content == "Lighthouse (location): Stands on the rock."
    retriever.close()


async def test_settings_reach_the_service_and_a_call_may_have_its_own(
    start: fakes.Start, engine: fakes.FakeEngine
) -> None:
    retriever = HiragRetriever(source=(await start(engine)).address, mode="flat", top_n=7, labels=["a"], as_of="2020")
    await retriever.ainvoke("q")
    await retriever.ainvoke("q", mode="naive", labels="b", vector=[0.0, 1.0, 0.0, 2.0], filter='year = "1851"')
    first, second = engine.queries
    assert (first.mode, first.top_n, first.labels, first.as_of, first.vector) == ("flat", 7, ("a",), "2020", None)
    assert (second.mode, second.labels, second.filter) == ("naive", ("b",), 'year = "1851"')
    assert second.vector is not None
    assert list(second.vector) == [0.0, 1.0, 0.0, 2.0]
    retriever.close()


async def test_clients_and_tokens(start: fakes.Start, engine: fakes.FakeEngine, tmp_path: Any) -> None:
    callers = fakes.CallersFile(tmp_path / "callers.yaml").add("web").add("job")
    address = (await start(engine, callers_file=callers.path)).address
    with HiragClient(address, token="web-token") as client:
        assert await HiragRetriever(source=client).ainvoke("q")  # its calls run in a thread
    async with AsyncHiragClient(address, token="web-token") as client:
        with pytest.raises(TypeError, match="source must be HOST:PORT"):
            HiragRetriever(source=client)
    retriever = HiragRetriever(source=address, client_options={"token": "wrong"})
    with pytest.raises(hd.ServiceError):
        await retriever.ainvoke("q")
    assert await retriever.ainvoke("q", token="job-token")
    assert "job-token" not in repr(HiragRetriever(source=address, token="job-token"))
    retriever.close()


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"source": 7}, TypeError, "source must be HOST:PORT of a service, a HiragClient, .*got int"),
        ({"source": "h:1", "levels": ["chunks"]}, ValidationError, "'local', 'global', 'bridge' or 'sources'"),
        ({"source": "h:1", "client_options": {"tokn": "x"}}, TypeError, "did you mean token?"),
        ({"source": "h:1", "reach": {"a"}}, ValueError, "reach is a setting for an open index"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        HiragRetriever(**fields)


@pytest.mark.parametrize(
    ("module", "package", "distribution"),
    [("langchain", "langchain_core", "langchain-core"), ("llamaindex", "llama_index", "llama-index-core")],
)
def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str, distribution: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, f"hirag_dist.integrations.{module}", raising=False)
    with pytest.raises(ImportError, match=rf"needs {distribution}; pip install 'hirag-dist\[{module}\]'"):
        importlib.import_module(f"hirag_dist.integrations.{module}")


def test_the_arguments_of_a_call_to_a_service() -> None:
    service = RetrievalSource("127.0.0.1:1", {})
    settings = RetrieverSettings(index="letters", token="secret", timeout_s=3)
    assert settings.arguments(service) == {
        "omit_context": True,
        "omit_source_text": False,
        "index": "letters",
        "token": "secret",
        "timeout_s": 3,
    }
    assert {"index", "token", "timeout_s"} <= CallOptions.__annotations__.keys()
    assert RetrieverSettings(levels=("local",)).arguments(service) == {"omit_context": True, "omit_source_text": True}
    assert "secret" not in repr(settings)


def test_every_field_of_a_query_is_a_setting() -> None:
    values = {"mode": "flat", "top_n": 1, "top_m": 2, "top_c": 3, "community_level": "leaf", "context_tokens": 4}
    values |= {"labels": ("a",), "filter": "year > 1", "as_of": "2020", "vector": (0.5,), "reach": frozenset({"b"})}
    assert RetrieverSettings().merged(values).query("q") == Query("q", **values)
    assert {"question", *values} == set(Query.__slots__)
