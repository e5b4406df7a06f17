"""An index that a caller may not ask is one that does not exist, by every interface."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from hirag_dist.client.common import service_stub
from hirag_dist.service.options import PageOptions, ServerOptions
from hirag_dist.service.request_gate import SERVICE_NAME
from hirag_dist.service.server import QueryServer
from hirag_dist.service.web.run import Page
from hirag_dist.wire._pb import query_pb2 as pb
from tests.service import fakes
from tests.service.test_catalogue import Folders

_IDS = re.compile(r"[0-9a-f]{24,}|\d{10}")
OTHERS = "gamma"  # the index of another tenant


class Tenants:
    """A service of three indexes, as caller `one` asks it, who may ask acme only."""

    def __init__(self, address: str, url: str, http: aiohttp.ClientSession) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.enable_retries", 0)])
        self._stub: Any = service_stub(self.channel)
        self._url = url
        self._http = http
        self._headers = {"Authorization": "Bearer one-token", "Content-Type": "application/json", "X-Request-Id": "r1"}

    async def grpc(self, method: str, index: str) -> str:
        """Status and text of a call."""
        request = getattr(pb, f"{method}Request")(index=index)
        if "query" in request.DESCRIPTOR.fields_by_name:
            request.query.question = "Who?"
        for name in ("entity", "source", "target", "community_id", "document_id"):
            if name in request.DESCRIPTOR.fields_by_name:
                setattr(request, name, "e1")
        call = getattr(self._stub, method)(request, metadata=fakes.token("one"))
        try:
            replies = [await call] if isinstance(call, grpc.aio.UnaryUnaryCall) else [reply async for reply in call]
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name} {error.details()}"
        return f"OK {replies}"

    async def post(self, path: str, body: dict[str, Any]) -> str:
        """Status and text of a request with a body."""
        async with self._http.post(self._url + path, data=json.dumps(body), headers=self._headers) as reply:
            return f"{reply.status} {await reply.text()}"

    async def get(self, path: str) -> str:
        """Status and text of a request."""
        async with self._http.get(self._url + path, headers=self._headers) as reply:
            return f"{reply.status} {await reply.text()}"

    async def replies(self, index: str) -> dict[str, str]:
        """Everything that the service says of an index, without the name and the ids of the requests."""
        said: dict[str, str] = {}
        for method in pb.DESCRIPTOR.services_by_name["QueryService"].methods_by_name:
            if method != "ListIndexes":
                said[method] = await self.grpc(method, index)
        asked = {"query": {"question": "Who?"}, "index": index}
        said["json"] = await self.post(f"{SERVICE_NAME}/Retrieve", asked)
        said["description"] = await self.post(f"{SERVICE_NAME}/DescribeIndex", {"index": index})
        chat = {"model": index, "messages": [{"role": "user", "content": "Who?"}]}
        said["chat"] = await self.post("v1/chat/completions", chat)
        said["stream"] = await self.post("v1/chat/completions", chat | {"stream": True})
        said["responses"] = await self.post("v1/responses", {"model": index, "input": "Who?"})
        said["model"] = await self.get(f"v1/models/{index}")
        return {name: _IDS.sub("#", text.replace(index, "NAME")) for name, text in said.items()}


@pytest.fixture
async def tenants(tmp_path: Path) -> AsyncIterator[tuple[Tenants, Folders]]:
    folders = Folders("acme", "beta", OTHERS)
    callers = fakes.CallersFile(tmp_path / "callers.yaml").add("one", indexes=["acme"]).add("two", indexes=[OTHERS])
    catalogue = folders.catalogue(OTHERS)
    server = QueryServer(catalogue, ServerOptions(listen="127.0.0.1:0", callers_file=callers.path))
    address = await server.start()
    await catalogue.start()
    await server.set_serving()
    options = PageOptions(listen="127.0.0.1:0", callers=True)
    async with Page(options, address) as page, aiohttp.ClientSession() as http:
        tenants = Tenants(address, page.url, http)
        yield tenants, folders
        await tenants.channel.close()
    await server.stop(0)
    await catalogue.close()


async def test_a_hidden_index_is_as_one_that_does_not_exist(tenants: tuple[Tenants, Folders]) -> None:
    asked, folders = tenants
    hidden, absent, own = [await asked.replies(name) for name in (OTHERS, "absent", "acme")]
    assert hidden == absent
    assert all(text.startswith(("NOT_FOUND", "404")) for text in hidden.values()), hidden
    assert own["Retrieve"].startswith("OK")
    assert own["chat"].startswith("200")
    assert (folders.engines[OTHERS], folders.engines["beta"]) == ([], [])  # nothing was opened for it


async def test_lists_have_the_caller_s_own_indexes_only(tenants: tuple[Tenants, Folders]) -> None:
    asked, _ = tenants
    for text in (await asked.get("v1/models"), await asked.post(f"{SERVICE_NAME}/ListIndexes", {})):
        assert text.startswith("200")
        assert "acme" in text
        assert OTHERS not in text
        assert "beta" not in text
    assert "of acme" in await asked.grpc("Retrieve", "")  # the only one of the caller; the default is hidden
