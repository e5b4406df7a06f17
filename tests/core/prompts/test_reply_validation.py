"""What is complete of a reply that broke off; refusals, the key that each points to; replies in another language."""

from __future__ import annotations

import json
import re

import pytest

from hirag_dist.config.model import EndpointConfig
from hirag_dist.core.prompts.reply_parsing import parse_extraction, parse_report, usable_text
from hirag_dist.core.prompts.reply_validation import (
    _REMEDIES,
    NOT_SENT,
    CutOffReply,
    MalformedReply,
    RepeatedReply,
    by_reason,
    complete_part,
    other_language,
    remedy_of,
)
from hirag_dist.types import ChatReply


def test_reasons_that_differ_by_names_and_numbers_are_one() -> None:
    groups = by_reason(
        [
            f"{NOT_SENT}the first 8 units were refused",
            f"{NOT_SENT}the first 9 units were refused",
            f"{NOT_SENT}the first 9 units were refused",
            "the reply repeats one line 12 times: ab",
            "the reply is empty",
            "the reply repeats one line 14 times: cd ef",
        ]
    )
    assert list(groups.values()) == [[3, 5], [4], [0, 1, 2]]  # what was not sent is a consequence of the others
    assert next(iter(groups)) == "the reply repeats one line 12 times: ab"


@pytest.mark.parametrize(
    ("reason", "key"),
    [
        ("the reply was cut off at the token limit", "llm.endpoints.a.max_reply_tokens"),
        ("no reply in 3 tries: nothing came in 600 s", "llm.endpoints.a.first_token_timeout_s"),
        ("endpoint a (m) answered 400: the prompt exceeds the context size", "chunk_tokens"),
        ("endpoint a (m) answered 400: unknown field", "llm.endpoints.a.extra_body"),
        ("the reply holds no record in the requested form", "llm.endpoints.a.output: json_schema"),
    ],
)
def test_a_reason_points_to_a_key(reason: str, key: str) -> None:
    assert key in remedy_of(reason, "a")


def test_every_key_of_an_endpoint_that_is_advised_exists() -> None:
    advised = {key for _, remedy in _REMEDIES for key in re.findall(r"\{endpoint\}\.(\w+)", remedy)}
    assert advised <= EndpointConfig.model_fields.keys()


GRAPH = {
    "entities": [
        {"id": 1, "name": "Ada {A}", "type": "person", "description": 'Says "]".'},
        {"id": 2, "name": "Bob", "type": "person", "description": "b"},
    ],
    "relations": [{"pairs": [[1, 2]], "description": "They met."}],
}


@pytest.mark.parametrize("indent", [None, 1])
def test_of_json_that_breaks_off_anywhere_the_complete_items_are_kept(indent: int | None) -> None:
    text = json.dumps(GRAPH, indent=indent)
    counts = []
    for end in range(len(text)):
        kept = complete_part("Here: " + text[:end])
        found = json.loads(kept) if kept else {}
        entities, relations = found.get("entities", []), found.get("relations", [])
        assert entities == GRAPH["entities"][: len(entities)]
        assert relations == GRAPH["relations"][: len(relations)]
        counts.append((len(entities), len(relations)))
    assert counts == sorted(counts)
    assert {(0, 0), (1, 0), (2, 0), (2, 1)} == set(counts)


def test_of_records_that_break_off_the_complete_lines_are_kept() -> None:
    kept = complete_part("1|Ada|person|a\n2|Bob|person|b\n1-2|They m")
    assert [entity.name for entity in parse_extraction(ChatReply(kept)).entities] == ["Ada", "Bob"]
    assert not parse_extraction(ChatReply(kept)).relations


def test_of_a_report_that_breaks_off_its_complete_findings_are_kept() -> None:
    finding = {"summary": "s", "explanation": "e", "references": ["E1"]}
    text = json.dumps({"title": "t", "summary": "u", "findings": [finding, finding | {"summary": "v"}]})
    assert [one.summary for one in parse_report(ChatReply(complete_part(text[:-30]))).findings] == ["s"]


def test_what_repeats_is_kept_once() -> None:
    many = [{"id": at, "name": "Ada", "type": "person", "description": "a"} for at in range(1, 40)]
    assert json.loads(complete_part(json.dumps({"entities": many})[:-9])) == {"entities": many[:1]}
    assert complete_part("1|Ada|person|a\n" * 30 + "1|A") == "1|Ada|person|a"


def test_of_prose_whole_sentences_are_kept_and_of_nothing_nothing() -> None:
    assert complete_part("Ada wrote. Bob read it. And th") == "Ada wrote. Bob read it."
    assert complete_part("Ada wro") == complete_part('{"entities": [{"id": 1, "na') == complete_part("") == ""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1|Ada|person|a\n2|Bob|person|b\n1-2|They m", CutOffReply),
        ("".join(f"{at}|Ada|person|A poet.\n" for at in range(20)), RepeatedReply),
        ("Ada was a poet" + " and a poet" * 80, RepeatedReply),
    ],
)
def test_a_loop_is_told_from_a_reply_that_was_cut_off(text: str, kind: type[MalformedReply]) -> None:
    with pytest.raises(MalformedReply) as caught:
        usable_text(ChatReply(text, finish_reason="length"))
    assert type(caught.value) is kind


# Our own sentences about one bridge, long enough together to tell a language by.
TEXTS = {
    "English": "The old bridge was built by the monks of the abbey, and it is the only one that crosses the river. "
    "For many years the people have paid a toll at the gate, which is now in the hands of the town. ",
    "German": "Die alte Brücke wurde von den Mönchen der Abtei gebaut und ist die einzige, die den Fluss überquert. "
    "Viele Jahre haben die Leute am Tor einen Zoll bezahlt, der sich nun im Besitz der Stadt befindet. ",
    "Russian": "Старый мост построили монахи аббатства, и он единственный пересекает реку. Много лет люди платили "
    "пошлину у ворот, которые теперь принадлежат городу. ",
    "Chinese": "这座古桥是修道院的僧侣修建的，是唯一一座横跨河流的桥。多年来，人们在桥门口缴纳过桥费，"
    "如今桥门归镇上所有。",
    "Arabic": "بنى رهبان الدير الجسر القديم وهو الجسر الوحيد الذي يعبر النهر وقد دفع الناس رسوما عند البوابة. ",
}


@pytest.mark.parametrize("read", TEXTS)
@pytest.mark.parametrize("written", TEXTS)
def test_two_languages_are_told_apart(written: str, read: str) -> None:
    assert bool(other_language([TEXTS[written] * 3], TEXTS[read] * 5)) == (written != read)


def test_the_reason_names_both() -> None:
    assert other_language([TEXTS["German"] * 3], TEXTS["English"] * 5) == (
        "the descriptions are in German, the text is in English"
    )
    assert "in Cyrillic script, the text is in Latin" in other_language([TEXTS["Russian"] * 3], TEXTS["English"] * 5)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ([TEXTS["German"]], "Short."),
        (["Kurz."], TEXTS["English"] * 5),
        (["Ludwig van Beethoven, Brücke, Kölner Dom, Frauenkirche"] * 4, TEXTS["English"] * 5),
        ([TEXTS["English"] + " „Die alte Brücke wurde gebaut.“ " + TEXTS["English"]], TEXTS["English"] * 5),
        (
            ["孙悟空 (Sun Wukong) 是花果山的美猴王，Monkey King 的名字很有名，他在天宫做过官，后来到西天取经。" * 3],
            TEXTS["Chinese"] * 5,
        ),
        ([TEXTS["Chinese"] * 3], TEXTS["Chinese"] * 3 + TEXTS["English"] * 3),
        ([TEXTS["English"] * 3], "def main(): return 0; x = [i for i in range(9)] " * 20),
    ],
)
def test_names_quotations_mixtures_and_short_texts_pass(written: list[str], read: str) -> None:
    assert other_language(written, read) == ""
