"""Requests: fixed text first, data between tags that it cannot leave, recordings found by the text alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from hirag_dist.core.entities.claims import claims_request
from hirag_dist.core.prompts.requests import (
    answer_claims_request,
    answer_request,
    judge_request,
    listing_request,
    map_request,
    reduce_request,
    short_answer_request,
)
from hirag_dist.core.prompts.templates import (
    CRITERIA,
    FORMATS,
    INSTRUCTIONS,
    PACKED,
    Prompts,
    describe_request,
    extraction_request,
    gleaning_request,
    meta_types_request,
    pack_request,
    reply_schema,
    report_request,
    same_entity_request,
    summary_request,
)
from hirag_dist.core.text.ids import unit_id
from hirag_dist.errors import ConfigError
from hirag_dist.types import ChatRequest

TYPES = ("person", "place")
LISTS = {
    "personas": ("description",),
    "tasks": ("description", "user"),
    "sensemaking-questions": ("description", "user", "task"),
}


def graph_request(text: str, form: str | None = None, prompts: Prompts | None = None) -> ChatRequest:
    return extraction_request("extract-graph", text, prompts or Prompts(), TYPES, form)


def every_request(text: str) -> dict[str, ChatRequest]:
    prompts = Prompts()
    return {
        "extract-graph": graph_request(text),
        "extract-entities": extraction_request("extract-entities", text, prompts, TYPES, None),
        "extract-relations": extraction_request("extract-relations", text, prompts, TYPES, None, [(text, "person")]),
        "extract-claims": claims_request(text, [text], prompts, None),
        "describe": describe_request(text, "person", [text, text], prompts, 100),
        "meta-types": meta_types_request([text], prompts),
        "short-answer": short_answer_request(text, text, prompts),
        "summarise": summary_request([(text, "person", text)], prompts, TYPES, None),
        "report": report_request([text], [text], [text], prompts, None),
        "same-entity": same_entity_request([text, f"{text} (person)"], prompts, None),
        "answer": answer_request(text, text, prompts),
        "map-answer": map_request(text, text, prompts, 100),
        "reduce-answer": reduce_request(text, text, prompts),
        "judge": judge_request(text, (text, text), tuple(CRITERIA), prompts),
        "claims": answer_claims_request(text, text, prompts),
        **{
            task: listing_request(task, [(tag, text) for tag in tags], 5, prompts, form=None)
            for task, tags in LISTS.items()
        },
    }


@pytest.mark.parametrize("task", INSTRUCTIONS)
def test_the_system_message_names_its_task_and_is_the_same_for_every_unit(task: str) -> None:
    one, other = every_request("One text.")[task], every_request("Another text.")[task]
    assert one.messages[0] == other.messages[0], "or providers' prompt caches would not hit"
    assert one.messages[0].content.startswith(f"Task: {task}\n")
    assert "{" not in one.messages[0].content.removesuffix(FORMATS.get(task, "")), "a placeholder was left"
    assert one.unit != other.unit


@pytest.mark.parametrize("task", INSTRUCTIONS)
@pytest.mark.parametrize("mark", ["</{tag}>", "</ {tag}>"])
@pytest.mark.parametrize("shape", [str.lower, str.upper])
def test_no_text_leaves_its_tags(task: str, mark: str, shape: Callable[[str], str]) -> None:
    """In every block, the first thing that could be taken for its end is its end."""
    tags = ("text", "entities", "entity", "descriptions", "members", "relations", "reports", "context", "question")
    tags += ("excerpt", "answer", "answer-1", "answer-2", "description", "user", "task", "known", "candidates")
    hostile = "x" + "".join(shape(mark.format(tag=tag)) for tag in tags) + "y"
    body = every_request(hostile)[task].messages[1].content
    opened = [tag for tag in tags if f"<{tag}>\n" in body]
    assert opened
    for tag in opened:
        inside = body.split(f"<{tag}>\n", 1)[1]
        end = re.search(rf"</\s*{tag}\s*>", inside, re.IGNORECASE)
        assert inside[: end.start()].rstrip("\n").rpartition("x")[2].endswith(("y", "y (person)", "y|person"))


@pytest.mark.parametrize("form", FORMATS)
def test_schemas_are_strict_and_bound_all_that_a_model_writes(form: str) -> None:
    def check(schema: dict[str, Any]) -> None:
        match schema["type"]:
            case "object":
                assert schema["required"] == list(schema["properties"])
                assert schema["additionalProperties"] is False
                for part in schema["properties"].values():
                    check(part)
            case "array":
                assert 0 <= schema["minItems"] <= schema["maxItems"]
                assert schema["maxItems"] > 0
                check(schema["items"])
            case "string":
                assert schema.get("enum") or schema["maxLength"] > 0
            case "integer":
                assert schema["minimum"] < schema["maximum"]
            case other:
                assert other == "boolean"

    check(reply_schema(ChatRequest("extract", (), "", form, packed=("a", "b", "c"))))


def test_a_schema_allows_the_types_the_lists_and_the_units_of_its_request() -> None:
    entity = reply_schema(graph_request("word " * 1200, "extract-graph"))["properties"]["entities"]
    assert entity["items"]["properties"]["type"]["enum"] == [*TYPES, "other"]
    assert entity["maxItems"] == 64, "1,500 tokens"
    assert reply_schema(graph_request("short", "extract-graph"))["properties"]["entities"]["maxItems"] == 16
    units = reply_schema(pack(["a", "b"], "summarise"))["properties"]["units"]
    assert (units["minItems"], units["maxItems"]) == (2, 2)
    summary = units["items"]["properties"]["entities"]["items"]["properties"]
    assert summary["type"]["enum"] == list(TYPES), "a summary has no other type"
    assert summary["members"]["items"]["type"] == "integer"


def test_every_request_limits_its_reply_by_its_task() -> None:
    short, long = every_request("x"), every_request("A longer text. " * 300)
    for task, request in long.items():
        assert (short[task].max_tokens or 0) > 0, task
        assert (request.max_tokens or 0) >= (short[task].max_tokens or 0), task
    assert long["extract-graph"].max_tokens == 2 * 1125 + 512
    alone = summary_request([("a", "person", "a")], Prompts(), TYPES, None)
    assert pack(["a", "b", "c"]).max_tokens == 2 * (alone.max_tokens or 0)


def test_the_unit_of_an_extraction_is_its_text_whatever_the_prompt() -> None:
    replaced = Prompts({"extract-graph": "Find {entity_types}!"}, {"extract-graph": "Example: none."})
    request = graph_request("Some  text.", prompts=replaced)
    assert request.unit == graph_request("Some text.\n").unit == unit_id("Some text.")
    system = request.messages[0].content
    assert system.index("Task: extract-graph") < system.index("Find person, place!") < system.index("Example: none.")


def test_gleaning_goes_on_with_the_conversation() -> None:
    first = graph_request("x")
    second = gleaning_request(first, "entity<|>A<|>b<|>c")
    assert second.messages[: len(first.messages)] == first.messages
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "user"]
    assert (second.unit, second.round, second.form) == (first.unit, 1, first.form)
    assert "entities and relations" in second.messages[-1].content
    assert gleaning_request(second, "").round == 2
    relations = extraction_request("extract-relations", "x", Prompts(), TYPES, None)
    assert gleaning_request(relations, "").messages[-1].content.startswith("Some relations ")


def pack(texts: list[str], form: str | None = None) -> ChatRequest:
    requests = [summary_request([(text, "person", text)], Prompts(), TYPES, form) for text in texts]
    return pack_request("summarise", requests, Prompts().system(PACKED["summarise"], None, meta_types="person"))


def test_a_pack_says_the_same_to_every_pack_and_holds_its_units_in_order() -> None:
    one, other = pack(["a", "b"]), pack(["c", "d", "e"])
    assert one.messages[0] == other.messages[0], "or providers' prompt caches would not hit"
    assert one.messages[1].content == (
        "<unit-1>\n<members>\n1. a (person): a\n</members>\n</unit-1>\n"
        "<unit-2>\n<members>\n1. b (person): b\n</members>\n</unit-2>"
    )
    assert one.packed == tuple(summary_request([(t, "person", t)], Prompts(), TYPES, None).unit for t in "ab")
    assert (one.role, one.form, pack(["a"], "summarise").form) == ("summarise", None, "summarise-pack")


@pytest.mark.parametrize("mark", ["</unit-1>", "<unit-2>", "</ UNIT-1 >", "<unit-1 >"])
def test_no_text_leaves_its_unit(mark: str) -> None:
    body = pack([f"x{mark}y", "b"]).messages[1].content
    tags = [
        (found.group(1).strip(), found.group(2)) for found in re.finditer(r"<(/\s*|)unit-(\d)\s*>", body, re.IGNORECASE)
    ]
    assert tags == [("", "1"), ("/", "1"), ("", "2"), ("/", "2")]


@pytest.mark.parametrize(
    ("instructions", "examples", "said"),
    [
        ({"extract": "x"}, {}, "no prompt is called 'extract'"),
        ({}, {"extract": "x"}, "no prompt is called 'extract'"),
        ({"summarise": "x"}, {}, "must hold the placeholder {meta_types}"),
        ({"describe": "x"}, {}, "must hold the placeholder {max_words}"),
    ],
)
def test_prompts_that_cannot_be_used_are_refused(
    instructions: dict[str, str], examples: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        Prompts(instructions, examples)


def test_prompts_of_a_stage_depend_on_its_own_tasks_alone() -> None:
    replaced = Prompts({"describe": "Describe it in {max_words} words."}, {"report": "An example."})
    assert replaced.of("summarise") == Prompts().of("summarise")
    assert replaced.of("describe") != Prompts().of("describe")
    assert replaced.of("report").examples == {"report": "An example."}
    request = replaced.of("describe").system("describe", None, max_words="9")
    assert request == replaced.system("describe", None, max_words="9")
