"""Every interface of a service, called in one way: gRPC, JSON over HTTP, and OpenAI's API.

A test of what holds for all of them takes `INTERFACES` as its parameter. A new interface needs a class with the methods
of `Interface`, and a line in that tuple.
"""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import grpc

from hirag_dist.service.http_api.gateway import error_of_call
from hirag_dist.service.request_gate import SERVICE_NAME
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.records import MODES
from tests.service import fakes

_STATUS = {200: "OK", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}


Served = fakes.Service


@dataclass
class Reply:
    """The name of a gRPC status, everything that was sent, and what of it makes a result."""

    status: str
    text: str
    found: tuple[str, ...] = ()  # ids of the entities and chunks of a retrieval, best first
    answer: str = ""
    cited: tuple[str, ...] = ()  # references of the answer


@dataclass
class Question:
    """A request that every interface can make, without the settings that it leaves out."""

    text: str = "Who lit the lamp?"
    mode: str = "hirag"
    token: str | None = None
    labels: tuple[str, ...] = ()

    @property
    def query(self) -> pb.Query:
        return pb.Query(question=self.text, mode=MODES[self.mode], labels=self.labels)

    @property
    def headers(self) -> dict[str, str]:
        token = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return {"Content-Type": "application/json"} | token


@asynccontextmanager
async def serving(engine: Any, **options: Any) -> AsyncIterator[Served]:
    """Serve an engine by every interface; keywords are `ServerOptions`."""
    services = fakes.Services()
    try:
        yield await services.start(engine, page={}, **options)
    finally:
        await services.stop()


class Interface:
    """A way to call a service; some retrieve without an answer."""

    name: ClassVar[str]
    retrieves: ClassVar[bool] = True

    async def retrieve(self, served: Served, asked: Question) -> Reply:
        raise NotImplementedError

    async def answer(self, served: Served, asked: Question) -> Reply:
        raise NotImplementedError


class Grpc(Interface):
    name = "grpc"

    async def retrieve(self, served: Served, asked: Question) -> Reply:
        request = pb.RetrieveRequest(query=asked.query)
        return await self._call(served, "Retrieve", request.SerializeToString(), asked, pb.RetrieveResponse)

    async def answer(self, served: Served, asked: Question) -> Reply:
        request = pb.AnswerRequest(query=asked.query)
        return await self._call(served, "Answer", request.SerializeToString(), asked, pb.AnswerResponse)

    async def _call(self, served: Served, method: str, raw: bytes, asked: Question, form: Any) -> Reply:
        call = served.channel.unary_stream(f"/{SERVICE_NAME}/{method}")
        token = () if asked.token is None else (("authorization", f"Bearer {asked.token}"),)
        messages: list[Any] = []
        try:
            async for message in call(raw, metadata=token):
                messages.append(form.FromString(message))
        except grpc.RpcError as error:
            return Reply(error_of_call(error).code.name, f"{messages}{error}")
        text = "".join(message.SerializeToString().decode("utf-8", "replace") for message in messages)
        if method == "Retrieve":
            found = messages[0].retrieval
            return Reply("OK", text, _ids(found.local, found.sources))
        final = messages[-1].answer
        return Reply("OK", text, answer=final.text, cited=tuple(each.ref for each in final.citations))


class _Http(Interface):
    async def _post(self, served: Served, path: str, asked: Question, body: bytes) -> tuple[Reply, list[Any]]:
        """Return the reply without its contents, and the JSON objects of its lines."""
        response = await served.request("POST", path, data=io.BytesIO(body), headers=asked.headers)
        text = await response.text()
        reply = Reply(_STATUS.get(response.status, str(response.status)), text)
        lines = [line.removeprefix("data: ") for line in text.split("\n")]
        return reply, [json.loads(line) for line in lines if line.startswith("{")]


class Json(_Http):
    name = "json"

    async def retrieve(self, served: Served, asked: Question) -> Reply:
        reply, (found,) = await self._post(served, f"{SERVICE_NAME}/Retrieve", asked, self._body(asked))
        if reply.status == "OK":
            parts = found["retrieval"]
            reply.found = tuple(each["entityId"] for each in parts["local"])
            reply.found += tuple(each["chunkId"] for each in parts["sources"])
        return reply

    async def answer(self, served: Served, asked: Question) -> Reply:
        reply, lines = await self._post(served, f"{SERVICE_NAME}/Answer", asked, self._body(asked))
        if reply.status == "OK":
            if "code" in lines[-1]:
                return Reply(lines[-1]["code"].upper(), reply.text)
            final = lines[-1]["answer"]
            reply.answer, reply.cited = final["text"], tuple(each["ref"] for each in final["citations"])
        return reply

    def _body(self, asked: Question) -> bytes:
        query = {"question": asked.text, "mode": f"MODE_{asked.mode.upper().replace('-', '_')}"}
        return json.dumps({"query": query | {"labels": asked.labels}}).encode()


class OpenAi(_Http):
    name = "openai"
    retrieves = False

    async def answer(self, served: Served, asked: Question) -> Reply:
        reply, (found, *_) = await self._post(served, "v1/chat/completions", asked, self._body(asked))
        if reply.status == "OK":
            reply.answer = found["choices"][0]["message"]["content"]
            reply.cited = tuple(each["ref"] for each in found["hirag"]["citations"])
        return reply

    def _body(self, asked: Question, **more: Any) -> bytes:
        messages = [{"role": "user", "content": asked.text}]
        hirag = {"labels": asked.labels}
        return json.dumps({"model": f"hirag/{asked.mode}", "messages": messages, "hirag": hirag} | more).encode()


class OpenAiStream(OpenAi):
    name = "openai-stream"

    async def answer(self, served: Served, asked: Question) -> Reply:
        reply, events = await self._post(served, "v1/chat/completions", asked, self._body(asked, stream=True))
        if reply.status == "OK":
            if "error" in events[-1]:
                return Reply(events[-1]["error"]["code"].upper(), reply.text)
            reply.answer = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
            reply.cited = tuple(each["ref"] for each in events[-1]["hirag"]["citations"])
        return reply


INTERFACES: tuple[Interface, ...] = (Grpc(), Json(), OpenAi(), OpenAiStream())


def callers_file(folder: Path, **callers: Any) -> fakes.CallersFile:
    """Return a callers file; each keyword is a caller with its labels."""
    file = fakes.CallersFile(folder / "callers.yaml")
    for name, labels in callers.items():
        file.add(name, labels=labels)
    return file


def _ids(entities: Any, sources: Any) -> tuple[str, ...]:
    return tuple(each.entity_id for each in entities) + tuple(each.chunk_id for each in sources)
