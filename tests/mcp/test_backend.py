"""An index opened in this process, as the tools of the server read it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import Client

from hirag_dist.api.index import AsyncIndex
from hirag_dist.errors import SnapshotNotFound
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.mcp import Caller, IndexBackend
from hirag_dist.mcp.tools import ServerSettings, make_server
from tests.leaky_builds import HIDDEN, NOBODY, Indexes, corpus


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Indexes:
    return Indexes(tmp_path_factory)


def backend_of(made: Indexes, reach: frozenset[str] | None) -> IndexBackend:
    opening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    opening.set_result(AsyncIndex(made(corpus(1)), "index", UsageMeter()))
    return IndexBackend(opening, reach)


async def replies(backend: IndexBackend) -> dict[str, Any]:
    """Return the replies of all tools."""
    found: dict[str, Any] = {}
    async with Client(make_server(backend, ServerSettings())) as client:

        async def call(name: str, **arguments: Any) -> Any:
            found[name] = await client.call_tool(name, arguments)
            assert not found[name].is_error, found[name].content
            return found[name].structured_content

        assert "list_indexes" not in {tool.name for tool in (await client.list_tools()).tools}
        searched = await call("search", question="wordaa wordbb", top_n=40)
        await call("answer", question="wordaa wordbb")
        await call("describe_index")
        entity = await call("entity", entity="wordaa", context_tokens=8000)

        def of_kind(kind: str, reply: Any = entity) -> list[str]:
            return [each["id"] for each in reply["references"] if each["kind"] == kind]

        await call("path_between", source="wordaa", target=of_kind("entity")[1])
        await call("document", document_id=of_kind("chunk", searched)[0])
        if of_kind("community"):
            await call("report", community_id=of_kind("community")[0])
        found["hidden"] = await client.call_tool("entity", {"entity": f"{HIDDEN}aa"})
        found["index"] = await client.call_tool("describe_index", {"index": "other"})
    return found


async def test_tools_read_the_index_within_a_reach(made: Indexes) -> None:
    owner, visitor = await replies(backend_of(made, None)), await replies(backend_of(made, NOBODY))
    assert "report" in owner
    assert HIDDEN in str({name: one for name, one in owner.items() if name != "hidden"})
    assert HIDDEN not in str({name: one for name, one in visitor.items() if name != "hidden"})
    assert (owner["hidden"].is_error, visitor["hidden"].is_error) == (False, True)
    assert owner["describe_index"].structured_content["counts"]["documents"] == 30
    assert visitor["describe_index"].structured_content["counts"]["documents"] == 20
    assert visitor["index"].meta["hirag-dist/reason"] == "INVALID_QUERY"


async def test_calls_wait_for_an_index_that_is_being_opened() -> None:
    opening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    backend = IndexBackend(opening)
    with pytest.raises(TimeoutError):
        await backend.describe(Caller(timeout_s=0.01))
    assert not opening.done()
    await backend.close()
    assert opening.cancelled()


async def test_an_index_that_cannot_be_opened() -> None:
    opening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    opening.set_exception(SnapshotNotFound("holds no index"))
    backend = IndexBackend(opening)
    async with Client(make_server(backend, ServerSettings())) as client:
        result = await client.call_tool("describe_index", {})
    assert (result.is_error, result.content[0].text) == (True, "holds no index")
    await backend.close()
