"""Prompts in the shapes that other packages give theirs are read, and the replies are in the form that they parse.

The prompts here are short ones of our own that keep what the reader goes by: delimiters, headings, order.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from benchmarks.peers import asking
from benchmarks.peers.answering import reply, structured
from hirag_dist.core.prompts.templates import Prompts, extraction_request
from hirag_dist.errors import RequestRejected
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import Message

TEXT = (
    "Isaac Newton studied light at Trinity College in Cambridge. Newton wrote to Robert Hooke about the prism. "
    "Robert Hooke was the curator of the Royal Society in London. The Royal Society printed what Newton found."
)
TUPLES = """\
-Goal-
List entities.
Format each entity as ("entity"<|><entity_name><|><entity_type><|><entity_description>)
Format each relationship as ("relationship"<|><source_entity><|><target_entity><|><why><|><strength>)
3. Return one list. Use **##** as the list delimiter.
4. When finished, output <|COMPLETE|>
-Examples-
Entity_types: [person]
Text:
Alex met Jordan.
######################
Output:
("entity"<|>ALEX<|>person<|>Alex met Jordan)##
-Real Data-
######################
Entity_types: person,place
Text: {text}
######################
Output:"""
ROWS = """\
- Entity row: `entity<|#|>entity_name<|#|>entity_type<|#|>entity_description`
---Entity Types---
- Person: humans
- Location: places
---Output Format Template---
"""
ROWS_ASKED = "---Task---\nExtract.\n\n---Input Text---\n```\n{text}\n```\n\n---Output---\n"
OBJECT = """\
<<ENTITY_TYPES_START>>
**Entity Types**:
person,place
<<ENTITY_TYPES_END>>

<<DOCUMENT_START>>
**Document**:
{text}
<<DOCUMENT_END>>

OUTPUT:
"""
REPORT = """\
Write a comprehensive report of a community, given entities.
# Example Input
Entities

id,entity,description
5,VERDANT OASIS PLAZA,a plaza
# Real Data
Text:
{data}
The report should include the following sections:
"""


def user(*texts: str) -> list[Message]:
    return [Message("user" if place % 2 == 0 else "assistant", text) for place, text in enumerate(texts)]


def names(text: str) -> set[str]:
    """Return the entities that the built-in model finds for hirag-dist."""
    request = extraction_request("extract-graph", text, Prompts(), ("person", "place"), "extract-graph")
    return {each["name"] for each in json.loads(reply_to(request.messages, "extract-graph"))["entities"]}


def test_tuples_hold_the_entities_that_hirag_dist_would_get() -> None:
    said = reply(user(TUPLES.format(text=TEXT)), None)
    assert said.endswith("<|COMPLETE|>")
    records = [record.strip("()").split("<|>") for record in said.removesuffix("<|COMPLETE|>").split("##\n")]
    assert {record[1] for record in records if record[0] == '"entity"'} == names(TEXT)
    relations = [record for record in records if record[0] == '"relationship"']
    assert relations
    assert all(len(record) == 5 and float(record[4]) >= 1 for record in relations)
    assert "ALEX" not in said


def test_only_the_records_that_a_tuple_prompt_describes_are_written() -> None:
    only = "\n".join(line for line in TUPLES.split("\n") if "relationship" not in line)
    assert '"relationship"' not in reply(user(only.format(text=TEXT)), None)


def test_clusters_get_summary_entities_that_their_members_are_tied_to() -> None:
    head = TUPLES.partition("-Real Data-")[0]
    members = [("Instagram", "Instagram is an app of Meta."), ("WhatsApp", "WhatsApp is an app of Meta, for messages.")]
    data = (
        f'Input:\nMeta attribute list: ["company", "product"]\nEntity description list: {members}\n#######\nOutput:\n'
    )
    said = reply(user(f"{head}-Real Data-\n######################\n{data}"), None)
    records = [record.strip("()").split("<|>") for record in said.removesuffix("<|COMPLETE|>").split("##\n")]
    summaries = {record[1] for record in records if record[0] == '"entity"'}
    tied = {record[1]: record[2] for record in records if record[0] == '"relationship"'}
    assert summaries
    assert set(tied) == {"Instagram", "WhatsApp"}
    assert set(tied.values()) <= summaries


def test_what_was_missed_is_asked_for_in_a_second_round() -> None:
    sample = next(iter(sorted((Path(str(resources.files("hirag_dist.samples"))) / "corpus").glob("*")))).read_text()
    first = TUPLES.format(text=sample)
    began = reply(user(first), None)
    more = reply(user(first, began, "MANY entities were missed."), None)
    assert more != began
    known = {record.split("<|>")[1] for record in began.split("##\n") if record.startswith('("entity"')}
    late = {record.split("<|>")[1] for record in more.split("##\n") if record.startswith('("entity"')}
    assert late
    assert not known & late


@pytest.mark.parametrize(
    ("asked", "said"), [("some missed. Answer YES | NO if there are more.", "NO"), ("a single letter Y or N.", "N")]
)
def test_loops_end(asked: str, said: str) -> None:
    assert reply(user(TUPLES.format(text=TEXT), "…", "MANY entities were missed.", "…", asked), None) == said


def test_rows_have_a_fixed_number_of_fields() -> None:
    said = reply([Message("system", ROWS), *user(ROWS_ASKED.format(text=TEXT))], None)
    *rows, done = said.split("\n")
    assert done == "<|COMPLETE|>"
    fields = [row.split("<|#|>") for row in rows]
    assert {len(row) for row in fields if row[0] == "entity"} == {4}
    assert {len(row) for row in fields if row[0] == "relation"} == {5}
    assert {row[1] for row in fields if row[0] == "entity"} == names(TEXT)


def test_objects_have_the_three_lists() -> None:
    said = json.loads(reply(user(OBJECT.format(text=TEXT)), None))
    assert set(said) == {"entities", "relationships", "other_relationships"}
    assert {each["name"] for each in said["entities"]} == names(TEXT)
    assert set(said["relationships"][0]) == {"source", "target", "desc"}


@pytest.mark.parametrize(
    "data",
    [
        '-----Entities-----\n```csv\nid,\tentity,\ttype,\tdescription\n0,\t"LIGHT",\t"CONCEPT",\t"what Newton, split"\n'
        '```\n-----Relationships-----\n```csv\nid,\tsource,\ttarget,\tdescription\n0,\t"LIGHT",\t"PRISM",\t"bends"\n```',
        'Entities\n\nid,entity,description\n5,LIGHT,"what Newton, split"\n\n'
        "Relationships\n\nid,source,target,description\n37,LIGHT,PRISM,bends\n",
    ],
)
def test_reports_are_on_the_rows_of_the_data_and_not_of_the_example(data: str) -> None:
    asked = asking.wanted(user(REPORT.format(data=data)))
    assert isinstance(asked, asking.Report)
    assert [(name, text) for name, _, text in asked.entities] == [("LIGHT", "what Newton, split")]
    assert asked.relations == (("LIGHT", "PRISM", "bends"),)
    said = json.loads(structured(user(REPORT.format(data=data)), {"type": "object"}))
    assert "LIGHT" in said["title"]
    assert all(set(finding) == {"summary", "explanation"} for finding in said["findings"])


def test_descriptions_are_of_what_was_listed() -> None:
    listed = ["Newton split light.", "Newton wrote letters to Hooke."]
    said = reply(
        user(f"Summarise.\n#######\n-Data-\nEntities: NEWTON\nDescription List: {listed}\n#######\nOutput:\n"), None
    )
    assert "Newton split light." in said


def test_keywords_are_of_the_question() -> None:
    asked = (
        '- `"high_level_keywords"`: themes\n---Real Data---\nUser Query: Who was Robert Hooke?\n\n---Output---\nOutput:'
    )
    said = json.loads(reply(user(asked), None))
    assert "Robert Hooke" in said["low_level_keywords"]
    assert said["high_level_keywords"] == ["Who was Robert Hooke?"]


def test_answers_come_from_the_context() -> None:
    system = f"---Role---\nHelpful.\n---Data tables---\n{TEXT}\n---Goal---\nAnswer."
    said = reply([Message("system", system), *user("Who was the curator of the Royal Society?")], None)
    assert "Robert Hooke was the curator" in said
    inside = (
        f"# INPUT DATA\n{TEXT}\n\n# USER QUERY\nWho was the curator of the Royal Society?\n\n# INSTRUCTIONS\nBrief."
    )
    assert "Robert Hooke was the curator" in json.loads(reply(user(inside), None))["answer"]


def test_own_prompts_get_the_built_in_models_reply() -> None:
    request = extraction_request("extract-graph", TEXT, Prompts(), ("person",), None)
    assert reply(request.messages, None) == reply_to(request.messages, None)


def test_unknown_words_are_refused_and_unknown_schemas_get_the_smallest_instance() -> None:
    with pytest.raises(RequestRejected, match=r"asking\.py"):
        reply(user("Sing a song."), None)
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    assert json.loads(structured(user("Is water wet?"), schema)) == {"ok": True}
