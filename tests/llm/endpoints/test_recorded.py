"""Recordings replayed: every format, what is missing, what is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.config.loader import load_config
from hirag_dist.core.prompts.reply_parsing import parse_extraction
from hirag_dist.core.prompts.templates import Prompts, extraction_request, gleaning_request
from hirag_dist.core.text.ids import unit_id
from hirag_dist.errors import ConfigError, RequestRejected
from hirag_dist.llm.endpoints.factory import make_chat_model
from hirag_dist.llm.endpoints.recorded import RecordedModel
from hirag_dist.types import ChatReply, ChatRequest
from tests.scripted_model import ScriptedModel

TEXT = "Alice met Bob in Paris."


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def own(reply: str, unit: str = "u1", **more: Any) -> dict[str, Any]:
    return {"role": "extract", "unit": unit, "round": 0, "reply": reply} | more


def asking(text: str = TEXT, form: str | None = None) -> ChatRequest:
    return extraction_request("extract-graph", text, Prompts(), ["person"], form)


def about(unit: str, role: str = "extract", round: int = 0) -> ChatRequest:
    return ChatRequest(role, (), unit, round=round)


async def test_finds_by_role_unit_and_round(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", own("a"), own("b", round=1), own("c", "u2"), own("d", role="report"))
    model = RecordedModel(path)
    assert (await model.complete(about("u1"))).text == "a"
    assert (await model.complete(about("u1", round=1))).text == "b"
    assert (await model.complete(about("u2"))).text == "c"
    assert (await model.complete(about("u1", "report"))).text == "d"


async def test_gives_what_is_recorded_of_the_call_and_counts_the_rest(tmp_path: Path) -> None:
    known = own("three short words", model="m", finish_reason="length", input_tokens=9, output_tokens=8)
    path = write(tmp_path / "r.jsonl", known, own("three short words", unit_id(TEXT)))
    model = RecordedModel(path, count_tokens=lambda text: len(text.split()))
    first = await model.complete(about("u1"))
    assert (first.model, first.finish_reason, first.input_tokens, first.output_tokens) == ("recorded:m", "length", 9, 8)
    second = await model.complete(asking())
    assert (second.model, second.output_tokens) == ("recorded", 3)
    assert second.input_tokens > 50


async def test_what_is_missing_is_refused_with_its_name(tmp_path: Path) -> None:
    model = RecordedModel(write(tmp_path / "r.jsonl", own("a")))
    with pytest.raises(RequestRejected, match=r"no recorded reply for extract, round 0, unit .*Alice met Bob"):
        await model.complete(asking())
    with pytest.raises(RequestRejected, match="no recorded reply"):
        [piece async for piece in model.stream(asking())]


async def test_what_is_missing_goes_to_the_fallback_under_its_own_model(tmp_path: Path) -> None:
    fallback = ScriptedModel(lambda request: "made up", name="other")
    model = RecordedModel(write(tmp_path / "r.jsonl", own("a")), fallback)
    assert (await model.complete(asking())).model == "other"
    assert [piece async for piece in model.stream(asking())] == ["made up", ChatReply("made up", model="other")]
    own_reply = await model.complete(about("u1"))
    assert (own_reply.text, own_reply.model) == ("a", "recorded")
    assert len(fallback.requests) == 2


NANO = [
    {"key": "k", "model": "gpt", "kind": "extract", "chunk_id": "c1", "round": 0, "response": "first"},
    {"key": "k", "model": "gpt", "kind": "extract_glean", "chunk_id": "c1", "round": 1, "response": "more"},
    {"key": "k", "model": "gpt", "kind": "extract_glean", "chunk_id": "c2", "response": "gleaned"},
    {"key": "k", "model": "gpt", "kind": "extract", "chunk_id": None, "response": "of no chunk"},
    {"key": "k", "model": "gpt", "kind": "community_report", "community_id": "6", "response": "{}"},
]
CHUNKS = [{"chunk_id": "c1", "text": TEXT}, {"chunk_id": "c2", "text": "\ufeffBob  left.\r\n"}]


async def test_nano_graphrag_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "chunks.jsonl", *CHUNKS)
    write(tmp_path / "llm_responses.jsonl", *NANO)
    write(tmp_path / "entities.jsonl", {"name": "ALICE"})
    model = RecordedModel(str(tmp_path))
    request = asking()
    first = await model.complete(request)
    assert (first.text, first.model) == ("first", "recorded:gpt")
    assert (await model.complete(gleaning_request(request, first.text))).text == "more"
    cleaned = asking("Bob left.")  # as reading gives it: no byte order mark, one kind of line end
    assert (await model.complete(gleaning_request(cleaned, ""))).text == "gleaned"
    assert "3 lines hold no reply that can be replayed, and are left out" in caplog.text


async def test_open_ie_triples_become_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    openie = {
        "passage_id": "p1",
        "entities": ["Alice", "C## <|> notes"],
        "triples": [["Alice", "met", "Bob"], ["Alice", "met"], ["Alice", "met", 3], ["Alice", "in\nthe", "Paris"]],
    }
    write(tmp_path / "openie.jsonl", openie, {"passage_id": "p2", "entities": [], "triples": []})
    write(
        tmp_path / "corpus.jsonl",
        {"passage_id": "p1", "title": "A meeting", "text": TEXT},
        {"passage_id": "p2", "title": "Nothing", "text": "Nothing."},
    )
    model = RecordedModel(str(tmp_path))
    reply = await model.complete(asking())
    found = parse_extraction(reply)
    assert [(e.name, e.type) for e in found.entities] == [("Alice", "unknown"), ("C# # notes", "unknown")]
    assert [(r.source, r.target, r.description, r.strength) for r in found.relations] == [
        ("Alice", "Bob", "Alice met Bob", 1.0),
        ("Alice", "Paris", "Alice in the Paris", 1.0),
    ]
    assert "2 triples are not three strings, and are left out" in caplog.text
    assert await model.complete(asking(f"A meeting\n{TEXT}")) == reply
    assert parse_extraction(await model.complete(asking("Nothing."))).entities == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no"),
        (b"", "no reply that can be replayed"),
        (b'{"role": "extract", "unit": "u", "reply": "x"}\n{"role": "ext', "line 2, is not JSON"),
    ],
)
def test_what_cannot_be_replayed(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "r.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        RecordedModel(str(path))


def test_the_name_is_of_the_content(tmp_path: Path) -> None:
    one = RecordedModel(write(tmp_path / "a.jsonl", own("a"), own("b", "u2")))
    moved = RecordedModel(write(tmp_path / "b.jsonl", own("b", "u2"), own("a")))
    other = RecordedModel(write(tmp_path / "c.jsonl", own("a"), own("B", "u2")))
    assert one.name == moved.name != other.name
    assert one.name.startswith("recorded:")
    assert RecordedModel(str(tmp_path / "a.jsonl"), ScriptedModel(lambda r: "")).name == f"{one.name}+scripted"


async def test_an_endpoint_takes_the_replies_of_its_model(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", own("first", model="other"), own("second", model="mine"))
    for model, reply in ((None, "first"), ("mine", "second")):
        endpoint = {"kind": "recorded", "path": path, "model": model}
        overrides = {"llm.endpoints.recording": endpoint, "llm.roles.extract": "recording"}
        found = make_chat_model("recording", load_config(None, {}, overrides).config)
        assert (await found.complete(about("u1"))).text == reply
