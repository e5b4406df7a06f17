"""The OpenAI-compatible API, with OpenAI's own client, and with the requests that Open WebUI makes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
from aiohttp import ClientConnectionResetError, web

from hirag_dist.errors import InvalidQuery, ModelUnavailable, RateLimited
from hirag_dist.service.hot_swap import SingleIndex, index_not_found
from hirag_dist.types import Citation
from hirag_dist.wire.error_status import DeadlinePassed, NotReady, Overloaded
from tests.service import fakes

pytestmark = pytest.mark.asyncio(loop_scope="module")
ASK: Any = [{"role": "user", "content": "Who lit the lamp?"}]
BODIES = [
    json.loads(line)
    for line in Path(__file__).with_name("client_bodies.jsonl").read_text(encoding="utf-8").splitlines()
]
MARK = {"start_index": 18, "end_index": 22, "title": "Wärterin", "url": "urn:hirag:entity:e2"}


@pytest_asyncio.fixture(loop_scope="module")
async def api(served: fakes.Service) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{served.url}v1", api_key="unused", max_retries=0) as api:
        yield api


async def ask(api: openai.AsyncOpenAI, **options: Any) -> Any:
    return await api.chat.completions.create(**({"model": "hirag", "messages": ASK} | options))


async def test_models(api: openai.AsyncOpenAI) -> None:
    models = {model.id: model async for model in await api.models.list()}
    assert {"hirag", "hirag/naive", "hirag/hirag", "hirag/graphrag-local"} <= set(models)
    assert "hirag/graphrag-global" not in models, "it costs a call for each part of the corpus"
    assert models["hirag"].owned_by == "hirag-dist"
    assert (await api.models.retrieve("hirag/naive")).id == "hirag/naive"
    for unknown in ("hirag/fast", "/naive", "gpt/4", "laws/naive"):
        with pytest.raises(openai.NotFoundError) as raised:
            await api.models.retrieve(unknown)
        assert raised.value.code == "model_not_found"
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as raised:
            await ask(api, model="gpt-4o", stream=stream)
        assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


async def test_the_model_names_the_index(api: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    find = SingleIndex.find

    def find_any(self: SingleIndex, name: str, caller: Any) -> Any:
        asked.append(name)
        return find(self, "", caller)

    monkeypatch.setattr(SingleIndex, "find", find_any)
    for model in ("hirag", "hirag/naive", "laws", "law/de/naive", "hirag/de"):
        assert (await ask(api, model=model)).model == model
    assert asked == ["hirag", "hirag", "laws", "law/de", "hirag/de"]


async def test_a_completion(served: fakes.Service, api: Any) -> None:
    reply = await api.chat.completions.with_raw_response.create(
        model="hirag/naive", messages=ASK, temperature=0.2, max_tokens=50, seed=1, user="ada", n=1, logprobs=False
    )
    assert reply.headers["X-Request-Id"] in reply.parse().id
    completion = reply.parse()
    (choice,) = completion.choices
    assert choice.message.content == fakes.ANSWER.text
    assert choice.finish_reason == "stop"
    (annotation,) = choice.message.annotations
    assert (annotation.type, annotation.url_citation.model_dump()) == ("url_citation", MARK)
    assert choice.message.content[18:22] == "[E2]"
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    assert completion.usage.model_dump(exclude_none=True) == usage
    assert completion.system_fingerprint == "s1"
    assert completion.hirag["citations"] == [{"ref": "E2", "kind": "entity", "id": "e2", "title": "Wärterin"}]
    assert (served.engine.queries[0].question, served.engine.queries[0].mode) == ("Who lit the lamp?", "naive")


@pytest.mark.parametrize("usage", [False, True])
async def test_a_streamed_completion(api: openai.AsyncOpenAI, usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    chunks = [chunk async for chunk in await ask(api, stream=True, **options)]
    assert len({chunk.id for chunk in chunks}) == 1
    if usage:
        last = chunks.pop()
        assert last.choices == []
        assert last.usage.total_tokens == 107
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == fakes.ANSWER.text
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert deltas[-1].annotations == [{"type": "url_citation", "url_citation": MARK}]


async def test_documents_are_cited_by_their_addresses(served: fakes.Service, api: Any) -> None:
    cited = Citation("S1", "chunk", "k1", "Log", document_id="d1", uri="https://example.org/log")
    text = "The keeper lit it [S1][S1], not [S2]."
    served.engine.answers(text, cited)
    marks = [each.url_citation for each in (await ask(api)).choices[0].message.annotations]
    assert [text[mark.start_index : mark.end_index] for mark in marks] == ["[S1]", "[S1]"]
    assert {mark.url for mark in marks} == {"https://example.org/log"}
    listed = {"hirag": {"source_list": True}}
    wanted = f"{text}\n\nSources:\n[S1] Log (https://example.org/log)"
    assert (await ask(api, extra_body=listed)).choices[0].message.content == wanted
    stream = await ask(api, stream=True, extra_body=listed)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == wanted


async def test_responses_list_the_sources(served: fakes.Service, api: Any) -> None:
    text = "The keeper lit it [S1]."
    served.engine.answers(text, Citation("S1", "chunk", "k1", "Log", document_id="d1", uri="https://example.org/log"))
    asked = {"model": "hirag", "input": "Who?", "extra_body": {"hirag": {"source_list": True}}}
    events = [event async for event in await api.responses.create(stream=True, **asked)]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == (
        f"{text}\n\nSources:\n[S1] Log (https://example.org/log)"
    )
    for response in (await api.responses.create(**asked), events[-1].response):
        (part,) = response.output[0].content
        assert part.text == f"{text}\n\nSources:\n[S1] Log (https://example.org/log)"
        assert [part.text[mark.start_index : mark.end_index] for mark in part.annotations] == ["[S1]"]


async def test_a_conversation_is_one_question(served: fakes.Service, api: Any) -> None:
    messages: Any = [
        {"role": "system", "content": "You are a pirate."},
        {"role": "user", "content": "Who lit\nthe lamp?"},
        {"role": "assistant", "content": "The keeper [E2], says the log [S1]."},
        {"role": "user", "content": "Where was she born?"},
        {"role": "assistant", "content": "On the rock [E1][S4]."},
        {"role": "user", "content": [{"type": "text", "text": "And who"}, {"type": "text", "text": "built it?\n"}]},
    ]
    await ask(api, messages=messages)
    await ask(api, messages=messages, extra_body={"hirag": {"history": False, "topN": 3, "labels": ["a"]}})
    first, second = served.engine.queries
    assert first.question == (
        "Earlier questions:\n- Who lit the lamp?\n- Where was she born?\n"
        "Last reply: On the rock.\nQuestion: And who\nbuilt it?"
    )
    assert (second.question, second.top_n, second.labels) == ("And who\nbuilt it?\n", 3, ("a",))


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"extra_body": {"function_call": {"name": "f"}}}, "function_call"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"extra_body": {"hirag": {"top_k": 3}}}, "hirag"),
        ({"extra_body": {"hirag": {"topN": 0}}}, "hirag.topN"),
        ({"stop": 5}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    ],
)
async def test_what_is_not_supported_is_refused(served: fakes.Service, api: Any, options: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await ask(api, **options)
    assert raised.value.param == param
    assert param in raised.value.message or "role user" in raised.value.message
    assert raised.value.type == "invalid_request_error"
    assert not served.engine.queries


async def test_without_a_default_index_the_model_is_to_name_one(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(self: SingleIndex, name: str, caller: Any) -> Any:
        raise index_not_found(name) if name else InvalidQuery("index: the service has several indexes; name one: laws")

    monkeypatch.setattr(SingleIndex, "find", find)
    with pytest.raises(openai.BadRequestError) as raised:
        await ask(api)
    assert (raised.value.body["message"], raised.value.param) == (
        "model: the service has several indexes; name one: laws",
        "model",
    )


async def test_an_error_after_the_first_event(served: fakes.Service, api: Any) -> None:
    served.engine.error = RateLimited("the model's endpoint asks for a pause", 7.0)
    with pytest.raises(openai.APIError, match="asks for a pause"):
        [chunk async for chunk in await ask(api, stream=True)]
    served.engine.error = ModelUnavailable("out")
    with pytest.raises(openai.InternalServerError, match="out"):
        await ask(api)


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (ModelUnavailable("out"), 1),
        (DeadlinePassed("late"), 1),
        (RateLimited("the model's endpoint asks for a pause", 0.01), 1),
        (NotReady("starting"), 2),
        (Overloaded("busy", retry_after_s=0.01), 2),
    ],
)
async def test_openais_client_repeats_what_the_service_advises(
    served: fakes.Service, api: openai.AsyncOpenAI, error: Exception, times: int
) -> None:
    served.engine.error = error
    with pytest.raises(openai.APIStatusError):
        await ask(api.with_options(max_retries=1))
    assert len(served.engine.queries) == times


async def test_a_client_that_leaves_during_a_write_is_no_error(
    api: openai.AsyncOpenAI, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = asyncio.Event()

    async def write(response: web.StreamResponse, data: bytes) -> None:
        left.set()
        raise ClientConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(web.StreamResponse, "write", write)
    with suppress(openai.APIConnectionError, httpx.HTTPError):
        [chunk async for chunk in await ask(api, stream=True)]
    assert left.is_set()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_requests_of_another_form(serve: Callable[..., Any]) -> None:
    served = await serve(page={"max_api_body_bytes": 2000})
    good = json.dumps({"model": "hirag", "messages": ASK}).encode()
    surrogate = b'{"model": "hirag", "messages": [{"role": "user", "content": "\\ud800"}]}'
    for method, path, body, headers, status in (
        ("POST", "chat/completions", b"", {}, 400),
        ("POST", "chat/completions", b"{not json", {}, 400),
        ("POST", "chat/completions", b"[]", {}, 400),
        ("POST", "chat/completions", b'{"model": "hirag", "messages": "\xff"}', {}, 400),
        ("POST", "chat/completions", b"[" * 1900, {}, 400),
        ("POST", "chat/completions", surrogate, {}, 400),
        ("POST", "chat/completions", b" " * 2001, {}, 413),
        ("POST", "chat/completions", good, {"Content-Type": "text/plain"}, 415),
        ("POST", "chat/completions", good, {"Host": "evil.example"}, 421),
        ("POST", "chat/completions", good, {"Origin": "http://evil.example"}, 403),
        ("POST", "chat/completions", good, {"Connect-Timeout-Ms": "soon"}, 400),
        ("GET", "chat/completions", None, {}, 404),
        ("POST", "embeddings", b"{}", {}, 404),
    ):
        sent = {"Content-Type": "application/json"} | headers
        response = await served.request(method, f"v1/{path}", data=body, headers=sent)
        assert response.status == status, (method, path, body, headers)
        assert (await response.json())["error"].keys() == {"message", "type", "param", "code"}
    assert not served.engine.queries


@pytest.mark.parametrize("sent", BODIES, ids=lambda sent: f"{sent['client']}, {sent['path']}")
async def test_what_clients_send_is_answered(served: fakes.Service, sent: dict[str, Any]) -> None:
    """Bodies as these clients make them: tools are not called, and what a server may ignore is ignored."""
    response = await served.post(f"v1/{sent['path']}", sent["body"])
    assert response.status == 200, await response.text()
    assert "lit it [E2]." in await response.text()
    assert served.engine.queries[0].question == "Who lit the lamp?"


@pytest.mark.parametrize(
    ("stop", "wanted"),
    [
        ("lit", "The keeper "),
        (["never", " it ["], "The keeper lit"),
        (["[E2]."], "The keeper lit it "),
        (["[E2]. And"], fakes.ANSWER.text),
        (["", "keeper lit"], "The "),
    ],
)
async def test_the_text_ends_before_a_stop_sequence(api: Any, stop: Any, wanted: str) -> None:
    """Sequences within a piece of the stream, over the end of one, and begun but not finished."""
    whole = await ask(api, stop=stop)
    assert whole.choices[0].message.content == wanted
    assert bool(whole.hirag["citations"]) == ("[E2]" in wanted)
    chunks = [chunk async for chunk in await ask(api, stop=stop, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == wanted
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_an_answer_that_repeated_itself_is_one_that_was_cut_off(served: fakes.Service, api: Any) -> None:
    served.engine.answer = replace(fakes.ANSWER, finish_reason="repetition")
    assert (await ask(api)).choices[0].finish_reason == "length"
    assert [chunk async for chunk in await ask(api, stream=True)][-1].choices[0].finish_reason == "length"
    assert (await api.responses.create(model="hirag", input="q")).incomplete_details.reason == "max_output_tokens"


async def test_responses(served: fakes.Service, api: Any) -> None:
    response = await api.responses.create(
        model="hirag/local", input="Who lit the lamp?", store=True, include=["file_search_call.results"]
    )
    assert response.output_text == fakes.ANSWER.text
    (annotation,) = response.output[0].content[0].annotations
    assert annotation.model_dump() == {"type": "url_citation", **MARK}
    assert response.usage.total_tokens == 107
    turns = [*ASK, {"role": "assistant", "content": [{"type": "output_text", "text": "She."}]}]
    stream = await api.responses.create(
        model="hirag", input=[*turns, {"role": "user", "content": "Why?"}], instructions="Be brief.", stream=True
    )
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == fakes.ANSWER.text
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == fakes.ANSWER.text
    assert served.engine.queries[1].question.endswith("Last reply: She.\nQuestion: Why?")
    with pytest.raises(openai.BadRequestError) as raised:
        await api.responses.create(model="hirag", input="q", previous_response_id="resp_1")
    assert raised.value.param == "previous_response_id"
    for refused in (
        {"tool_choice": "required"},
        {"text": {"format": {"type": "json_object"}}},
        {"background": True},
        {"include": ["message.output_text.logprobs"]},
    ):
        with pytest.raises(openai.BadRequestError, match=next(iter(refused))):
            await api.responses.create(model="hirag", input="q", extra_body=refused)
    served.engine.error = ModelUnavailable("out")
    async with api.responses.stream(model="hirag", input="q") as stream:
        assert [event.type async for event in stream][-1] == "response.failed"
