"""An index that a caller may not ask is one that does not exist, by every interface."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import grpc
import pytest

from hirag_dist.service.request_gate import SERVICE_NAME
from hirag_dist.wire._pb import query_pb2 as pb
from tests.service import fakes
from tests.service.fixtures import start
from tests.service.test_catalogue import Folders

__all__ = ["start"]

_IDS = re.compile(r"[0-9a-f]{24,}|\d{10}")
OTHERS = "gamma"  # the index of another tenant


class Tenants:
    """A service of three indexes, as caller `one` asks it, who may ask acme only."""

    def __init__(self, service: fakes.Service) -> None:
        self._service = service

    async def grpc(self, method: str, index: str) -> str:
        """Status and text of a call."""
        request = getattr(pb, f"{method}Request")(index=index)
        if "query" in request.DESCRIPTOR.fields_by_name:
            request.query.question = "Who?"
        for name in ("entity", "source", "target", "community_id", "document_id"):
            if name in request.DESCRIPTOR.fields_by_name:
                setattr(request, name, "e1")
        call = getattr(self._service.stub, method)(request, metadata=fakes.token("one"))
        try:
            replies = [await call] if isinstance(call, grpc.aio.UnaryUnaryCall) else [reply async for reply in call]
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name} {error.details()}"
        return f"OK {replies}"

    async def http(self, path: str, body: dict[str, Any] | None = None) -> str:
        """Status and text of a request, with a body or without."""
        headers = {"Authorization": "Bearer one-token", "X-Request-Id": "r1"}
        reply = await self._service.request("GET" if body is None else "POST", path, json=body, headers=headers)
        return f"{reply.status} {await reply.text()}"

    async def replies(self, index: str) -> dict[str, str]:
        """Everything that the service says of an index, without the name and the ids of the requests."""
        said: dict[str, str] = {}
        for method in pb.DESCRIPTOR.services_by_name["QueryService"].methods_by_name:
            if method != "ListIndexes":
                said[method] = await self.grpc(method, index)
        asked = {"query": {"question": "Who?"}, "index": index}
        said["json"] = await self.http(f"{SERVICE_NAME}/Retrieve", asked)
        said["description"] = await self.http(f"{SERVICE_NAME}/DescribeIndex", {"index": index})
        chat = {"model": index, "messages": [{"role": "user", "content": "Who?"}]}
        said["chat"] = await self.http("v1/chat/completions", chat)
        said["stream"] = await self.http("v1/chat/completions", chat | {"stream": True})
        said["responses"] = await self.http("v1/responses", {"model": index, "input": "Who?"})
        said["model"] = await self.http(f"v1/models/{index}")
        return {name: _IDS.sub("#", text.replace(index, "NAME")) for name, text in said.items()}


@pytest.fixture
async def tenants(start: fakes.Start, tmp_path: Path) -> tuple[Tenants, Folders]:
    folders = Folders("acme", "beta", OTHERS)
    callers = fakes.CallersFile(tmp_path / "callers.yaml").add("one", indexes=["acme"]).add("two", indexes=[OTHERS])
    return Tenants(await start(folders.catalogue(OTHERS), page={}, callers_file=callers.path)), folders


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
    for text in (await asked.http("v1/models"), await asked.http(f"{SERVICE_NAME}/ListIndexes", {})):
        assert text.startswith("200")
        assert "acme" in text
        assert OTHERS not in text
        assert "beta" not in text
    assert "of acme" in await asked.grpc("Retrieve", "")  # the only one of the caller; the default is hidden
