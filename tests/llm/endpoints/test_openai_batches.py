"""The Batch API client: the meaning of an endpoint's answers, and the error for one without batches."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from hirag_dist.errors import BackendUnavailable, ModelUnavailable, RequestRejected, UnusableReply
from hirag_dist.llm.batch_api import Batchable, OversizedFile
from hirag_dist.llm.endpoints.openai_batches import OpenAiBatches
from hirag_dist.llm.endpoints.openai_chat import OpenAiChat
from hirag_dist.llm.endpoints.openai_client import EndpointSettings
from hirag_dist.testing.simulator import Simulator, SimulatorOptions

BODY = {
    "model": "m-1",
    "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
}
KEY = "ab" * 20
CALL = {
    "custom_id": f"{KEY}.7",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"model": "m", "messages": [{"role": "user", "content": "What is a whale?"}]},
}


def made(url: str = "http://127.0.0.1:9/v1", **more: Any) -> OpenAiBatches:
    settings = EndpointSettings("mine", url, "", "m", timeout_s=5.0, **more)
    chat = OpenAiChat(settings, lambda text: len(text.split()))
    assert isinstance(chat, Batchable)
    return OpenAiBatches(chat)


@asynccontextmanager
async def answering(handler: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[OpenAiBatches]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    batches = made(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    try:
        yield batches
    finally:
        await batches.close()
        await runner.cleanup()


def line(status: int | None = 200, body: object = None, error: object = None) -> bytes:
    response = None if status is None else {"status_code": status, "body": BODY if body is None else body}
    return json.dumps({"id": "x", "custom_id": f"{KEY}.7", "response": response, "error": error}).encode() + b"\n"


def test_a_line_with_a_reply() -> None:
    found = made().read(line())
    assert found.key == KEY
    assert found.reply is not None
    assert (found.reply.text, found.reply.model) == ("hello", "m-1")
    assert (found.reply.input_tokens, found.reply.cached_tokens, found.reply.output_tokens) == (9, 3, 2)


def test_without_usage_tokens_are_counted() -> None:
    reply = made().read(line(body={"choices": BODY["choices"]})).reply
    assert reply is not None
    assert (reply.input_tokens, reply.output_tokens, reply.model) == (7, 1, "m")  # the prompt's stand in the id


@pytest.mark.parametrize(
    ("raw", "refused"),
    [
        (line(None, error={"code": "batch_expired", "message": "too late"}), False),
        (line(500, {"error": {"message": "oops"}}), False),
        (line(429, {"error": {"message": "slower"}}), False),
        (line(200, {"choices": []}), False),
        (line(400, {"error": {"message": "too long", "code": "context_length_exceeded"}}), True),
        (b"<html>\n", False),
        (b"[]\n", False),
    ],
)
def test_a_line_without_one(raw: bytes, refused: bool) -> None:
    found = made().read(raw)
    assert (found.reply, found.refused) == (None, refused)


def test_a_prompt_that_a_filter_stopped_is_a_reply_as_it_is_for_single_calls() -> None:
    reply = made().read(line(400, {"error": {"message": "no", "code": "content_filter"}})).reply
    assert reply is not None
    assert (reply.text, reply.finish_reason, reply.input_tokens) == ("", "content_filter", 7)


def test_a_foreign_line_has_no_key() -> None:
    foreign = json.dumps({"custom_id": "theirs", "response": {"status_code": 200, "body": BODY}}).encode()
    assert made().read(foreign).key == ""


@pytest.mark.parametrize("status", [404, 405])
async def test_an_endpoint_without_batches_is_named_with_what_to_do(status: int) -> None:
    async def nothing(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "Not Found"}}, status=status)

    async with answering(nothing) as batches:
        for call in (batches.check(), batches.upload("a", io.BytesIO(b"{}")), batches.create("f", "o")):
            with pytest.raises(BackendUnavailable, match=r"endpoint mine takes no batches .*leave --batch out"):
                await call


async def test_other_errors_are_those_of_any_call() -> None:
    statuses = iter((401, 503))

    async def fail(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no"}}, status=next(statuses))

    async with answering(fail) as batches:
        with pytest.raises(RequestRejected, match="check api_key"):
            await batches.check()
        with pytest.raises(ModelUnavailable):
            await batches.state("b")


@pytest.mark.parametrize(
    ("changes", "ended", "problem"),
    [
        ({"status": "in_progress"}, False, ""),
        ({"status": "expired"}, True, ""),
        ({"status": "cancelled"}, True, "was cancelled there"),
        (
            {
                "status": "failed",
                "errors": {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}]},
            },
            True,
            "Enqueued token limit reached (token_limit_exceeded); set llm.batch_lines lower",
        ),
        ({"status": "failed"}, True, "it does not say why"),
    ],
)
async def test_how_a_batch_is(changes: dict[str, Any], ended: bool, problem: str) -> None:
    async def tell(request: web.Request) -> web.Response:
        whole = {"id": "b", "object": "batch", "created_at": 1, "endpoint": "/v1/chat/completions"}
        return web.json_response(
            whole | {"input_file_id": "f", "completion_window": "24h", "output_file_id": "o"} | changes
        )

    async with answering(tell) as batches:
        state = await batches.state("b")
    assert (state.id, state.ended, state.files) == ("b", ended, ("o",))
    assert problem in state.problem
    assert bool(state.problem) == bool(problem)


async def test_a_batch_from_upload_to_removal() -> None:
    async with Simulator(SimulatorOptions(listen="127.0.0.1:0")) as simulator:
        batches = made(simulator.base_url)
        try:
            await batches.check()
            file = await batches.upload("calls.jsonl", io.BytesIO(json.dumps(CALL).encode() + b"\n"))
            assert await batches.find("ours", 0.0) is None
            begun = await batches.create(file, "ours")
            await batches.create(file, "another")
            found = await batches.find("ours", 0.0)
            assert found is not None
            assert found.id == begun.id
            while not (state := await batches.state(begun.id)).ended:
                pass
            got = io.BytesIO(b"from an earlier try, and longer than what comes" * 100)
            await batches.download(state.files[0], got, 1 << 20)
            (only,) = got.getvalue().splitlines()
            assert batches.read(only).key == KEY
            for each in (file, *state.files):
                await batches.remove(each)
            with pytest.raises(RequestRejected):
                await batches.download(file, got, 1 << 20)
        finally:
            await batches.close()


async def test_a_file_of_results_is_downloaded_up_to_its_bound() -> None:
    async def send(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 100_000)

    async with answering(send) as batches:
        got = io.BytesIO()
        await batches.download("f", got, 100_000)
        assert len(got.getvalue()) == 100_000
        with pytest.raises(OversizedFile, match="over 99,999 bytes"):
            await batches.download("f", got, 99_999)


ODD_BATCHES: list[Any] = [
    {}, {"id": None}, {"id": ["b"]}, {"id": ""}, {"data": 7}, {"data": [7, {"id": 1.5}, {"id": []}]}, {"error": {}},
]  # fmt: skip


@pytest.mark.parametrize("body", ODD_BATCHES, ids=repr)
async def test_a_batch_without_an_id_is_no_batch(body: Any) -> None:
    async def tell(request: web.Request) -> web.Response:
        return web.json_response(body)

    async with answering(tell) as batches:
        for call in (batches.state("b"), batches.create("f", "o"), batches.upload("a", io.BytesIO(b"{}"))):
            with pytest.raises(UnusableReply):
                await call
        assert await batches.find("ours", 0.0) is None


async def test_odd_fields_of_a_batch_are_as_good_as_missing() -> None:
    odd = {"status": ["failed"], "metadata": [1], "errors": {"data": {"a": 1}}, "created_at": "now"}

    async def tell(request: web.Request) -> web.Response:
        return web.json_response({"id": "b", "output_file_id": {}, "error_file_id": 7} | odd)

    async with answering(tell) as batches:
        state = await batches.state("b")
    assert (state.id, state.ended, state.problem, state.files) == ("b", False, "", ("7",))


async def test_a_list_of_batches_without_end_is_left() -> None:
    pages = []

    async def tell(request: web.Request) -> web.Response:
        pages.append(request.query.get("after"))
        return web.json_response({"data": [{"id": "same", "created_at": 2**60}], "has_more": True})

    async with answering(tell) as batches:
        assert await batches.find("ours", 0.0) is None
    assert pages[:2] == [None, "same"]
    assert len(pages) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"custom_id": 7}, {"custom_id": ["a"]}, {"custom_id": "xy.1"}, {"response": 7},
        {"response": {"status_code": "200"}},
        {"response": {"status_code": 200, "body": [1]}}, {"response": {"status_code": 200, "body": {"choices": [7]}}},
        {"response": {"status_code": 400, "body": {"error": {"code": [1], "type": {}}}}},
    ],
)  # fmt: skip
def test_odd_lines_hold_no_reply(changes: dict[str, Any]) -> None:
    found = made().read(json.dumps(json.loads(line()) | changes).encode())
    assert found.reply is None or found.key == ""
