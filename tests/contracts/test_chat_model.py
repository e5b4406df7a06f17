"""Contract of ChatModel: run on the built-in one, the same over HTTP, and a recording."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hirag_dist.core.prompts.reply_validation import usable_text
from hirag_dist.core.prompts.requests import answer_request
from hirag_dist.core.prompts.templates import (
    Prompts,
    describe_request,
    extraction_request,
    gleaning_request,
    report_request,
    summary_request,
)
from hirag_dist.errors import RequestRejected
from hirag_dist.llm.endpoints.openai_chat import OpenAiChat
from hirag_dist.llm.endpoints.openai_client import EndpointSettings
from hirag_dist.llm.endpoints.recorded import RecordedModel
from hirag_dist.llm.rule_based import ExtractiveModel
from hirag_dist.protocols import ChatModel
from hirag_dist.testing.simulator import Simulator, SimulatorOptions
from hirag_dist.types import ChatRequest, Message
from tests.llm.endpoints.loopback import read_stream

PROMPTS = Prompts()
TEXT = (
    "Ebenezer Scrooge kept his counting-house in London. Bob Cratchit worked for Scrooge as a clerk. "
    "The Ghost of Jacob Marley visited Ebenezer Scrooge on Christmas Eve, and Scrooge was afraid of the Ghost."
)
MEMBERS = [
    ("Bob Cratchit", "person", "Bob Cratchit is a clerk in the counting-house of Scrooge in London."),
    ("Jacob Marley", "person", "Jacob Marley was the partner of Scrooge in the counting-house in London."),
]


def extraction(form: str | None, text: str = TEXT) -> ChatRequest:
    return extraction_request("extract-graph", text, PROMPTS, ["person", "location"], form)


REQUESTS: dict[str, ChatRequest] = {
    "extract": extraction(None),
    "extract as JSON": extraction("extract-graph", f"{TEXT} The end."),  # recordings do not tell forms apart
    "glean": gleaning_request(extraction(None), "entity<|>Bob Cratchit<|>person<|>A clerk.\n<|COMPLETE|>"),
    "describe": describe_request("Scrooge", "person", ["Scrooge is a miser.", "Scrooge lives in London."], PROMPTS, 60),
    "summarise": summary_request(MEMBERS, PROMPTS, ["organization", "person"], "summarise"),
    "report": report_request(
        ["E1. Scrooge (person): a miser in London.", "E2. Bob Cratchit (person): his clerk."],
        ["R1. Scrooge - Bob Cratchit: Scrooge employs Bob Cratchit."],
        [],
        PROMPTS,
        "report",
    ),
    "answer": answer_request("Who worked for Scrooge?", f"[S1] {TEXT}", PROMPTS),
    "answer, café 東京": answer_request("Où est le café 東京?", "[S1] Le café 東京 est à Genève. 🙂", PROMPTS),
}


def count_tokens(text: str) -> int:
    return len(text.split())


async def recording(folder: Path) -> RecordedModel:
    source = ExtractiveModel(count_tokens)
    rows = []
    for request in REQUESTS.values():
        if request.form is None:
            reply = (await source.complete(request)).text
            rows.append({"role": request.role, "unit": request.unit, "round": request.round, "reply": reply})
    (folder / "replies.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return RecordedModel(str(folder), fallback=source, count_tokens=count_tokens)


@pytest.fixture(params=["extractive", "openai", "recorded"])
async def model(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChatModel]:
    if request.param == "extractive":
        yield ExtractiveModel(count_tokens)
    elif request.param == "recorded":
        yield await recording(tmp_path)
    else:
        async with Simulator(SimulatorOptions(listen="127.0.0.1:0")) as simulator:
            settings = EndpointSettings("simulated", simulator.base_url, "", "extractive", first_token_timeout_s=20.0)
            made = OpenAiChat(settings, count_tokens)
            yield made
            await made.close()


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_is_the_same_byte_for_byte(model: ChatModel, request_: ChatRequest) -> None:
    """Whole and in pieces, with its cost."""
    expected = await ExtractiveModel(count_tokens).complete(request_)
    whole = await model.complete(request_)
    pieces, reply = await read_stream(model, request_)
    assert pieces == whole.text == expected.text
    for each in (whole, reply):
        assert usable_text(each) == expected.text
        assert (each.finish_reason, each.cached_tokens, bool(each.model)) == ("stop", 0, True)
        assert min(each.input_tokens, each.output_tokens) > 0


async def test_refuses_what_it_cannot_do(model: ChatModel) -> None:
    request = ChatRequest("judge", (Message("system", "Task: judge"), Message("user", "Which is better?")), "u")
    with pytest.raises(RequestRejected):
        await model.complete(request)
    with pytest.raises(RequestRejected):
        await read_stream(model, request)
