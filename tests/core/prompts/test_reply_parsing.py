"""Replies as models write them: what is plainly meant is read, everything else is refused with its reason."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from hirag_dist.core.prompts.reply_limits import DESCRIPTION_CHARS, MAX_ITEMS
from hirag_dist.core.prompts.reply_parsing import (
    COVER_STRENGTH,
    COVERED,
    EntityRecord,
    ExtractionReply,
    MalformedReply,
    MemberLink,
    RelationRecord,
    ReportFinding,
    SameEntityReply,
    parse_extraction,
    parse_meta_types,
    parse_report,
    parse_same,
    parse_summary,
    parse_text,
    usable_text,
)
from hirag_dist.core.prompts.templates import FORMATS
from hirag_dist.types import ChatReply

SCROOGE = EntityRecord("Scrooge", "person", "A miser.")
BOB = EntityRecord("Bob Cratchit", "person", "His clerk.")
WORKS = RelationRecord("Bob Cratchit", "Scrooge", "Bob works for Scrooge.", 8.0)
PLAIN = """\
entity<|>Scrooge<|>person<|>A miser.
entity<|>Bob Cratchit<|>person<|>His clerk.
relation<|>Bob Cratchit<|>Scrooge<|>Bob works for Scrooge.<|>8
<|COMPLETE|>"""
AS_JSON: dict[str, Any] = {
    "entities": [
        {"name": "Scrooge", "type": "person", "description": "A miser."},
        {"name": "Bob Cratchit", "type": "person", "description": "His clerk."},
    ],
    "relations": [
        {"source": "Bob Cratchit", "target": "Scrooge", "description": "Bob works for Scrooge.", "strength": 8}
    ],
}
ECHO = "quotes the form back"


def extraction(text: str) -> ExtractionReply:
    return parse_extraction(ChatReply(text))


def names(text: str) -> list[str]:
    return [entity.name for entity in extraction(text).entities]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("\n", "##"),
        PLAIN.replace("entity", "- entity").replace("relation", "* relation"),
        "```text\n" + PLAIN + "\n```",
        "The prompt opened the thinking.\nentity<|>Marley<|>person<|>Perhaps?\n</think>\n\n" + PLAIN,
        '("entity"<|>"Scrooge"<|>"person"<|>"A miser.")##\n'
        '("entity"<|>"Bob Cratchit"<|>"person"<|>"His clerk.")##\n'
        '("relationship"<|>"Bob Cratchit"<|>"Scrooge"<|>"Bob works for Scrooge."<|>8)<|COMPLETE|>',
        '1. ("entity"<|>"Scrooge"<|>"person"<|>"A miser.")\n2) ("entity"<|>"Bob Cratchit"<|>"person"<|>"His clerk.")\n'
        '3. ("relationship"<|>"Bob Cratchit"<|>"Scrooge"<|>"Bob works for Scrooge."<|>"8")',
        "“entity”<|>“Scrooge”<|>PERSON.<|>“A miser.”\nentity<|>Bob  Cratchit,<|>person<|>His clerk.\n"
        "relation<|>Bob Cratchit<|>Scrooge<|>Bob works for Scrooge.<|>8",
        json.dumps(AS_JSON),
        json.dumps(AS_JSON).replace("}]", "},]").replace("]}", "], }"),
        "<|channel|>analysis<|message|>entity<|>Marley<|>person<|>Perhaps?<|end|>"
        "<|start|>assistant<|channel|>final<|message|>" + PLAIN,
        "Sure!\n```json\n" + json.dumps(AS_JSON, indent=1) + "\n```\nDone.",
    ],
)
def test_records_in_every_dress_are_the_same_records(text: str) -> None:
    assert extraction(text) == ExtractionReply((SCROOGE, BOB), (WORKS,))


NUMBERED = """\
1|Scrooge|person|A miser.
2|Bob Cratchit|person|His clerk.
2-1|Bob works for Scrooge.
<|COMPLETE|>"""
NUMBERED_JSON: dict[str, Any] = {
    "entities": [{"id": at, **each} for at, each in enumerate(AS_JSON["entities"], start=1)],
    "relations": [{"pairs": "2-1", "description": "Bob works for Scrooge."}],
}


@pytest.mark.parametrize(
    "text",
    [
        NUMBERED,
        "\n".join(f"- {line}" for line in NUMBERED.split("\n")),
        "\n".join(f"| {line.replace('|', ' | ')} |" for line in NUMBERED.split("\n")[:3]),
        NUMBERED.replace("1|S", "entity|1|S").replace("2-1", "relation|2-1"),
        json.dumps(NUMBERED_JSON),
        *(
            json.dumps(NUMBERED_JSON | {"relations": [{"pairs": pairs, "description": "Bob works for Scrooge."}]})
            for pairs in ([["Bob Cratchit", "SCROOGE"]], [[2, 1]], [[2, 1], [9, 1], [1], "x", None])
        ),
    ],
)
def test_numbered_records_in_every_dress_are_the_same_records(text: str) -> None:
    assert extraction(text) == ExtractionReply((SCROOGE, BOB), (replace(WORKS, strength=0.0),))


def test_pairs_share_a_text_and_one_without_has_that_of_its_first_entity() -> None:
    read = extraction("1|A|x|Knows B.\n2|B|x|\n3|C|x|Of C.\n1-2 1-3|They met.\n3-2, 2-3|\n1-3")
    assert [(one.source, one.target, one.description) for one in read.relations] == [
        ("A", "B", "They met."),
        ("A", "C", "They met."),
        ("C", "B", "Of C."),
        ("B", "C", "Of C."),
        ("A", "C", "Knows B."),
    ]


def test_pairs_by_a_number_that_no_entity_or_more_than_one_has_are_dropped() -> None:
    read = extraction("1|A|x|a\n2|B|x|b\n2|C|x|c\n3|D|x|d\n1-2|Which?\n1-9|Who?\n1-1|Himself.\n1-3|Both.")
    assert [(one.source, one.target) for one in read.relations] == [("A", "D")]


def test_what_is_left_out_is_counted() -> None:
    assert extraction("1|A|x|a\n2|B|x|b\n1-2 1-9|They met.\n7-8|Who?").n_dropped == 2
    many = "\n".join(f"{at}|Name {at}|x|Text {at} of {at * 7}." for at in range(1, 301))
    read = extraction(many)
    assert (len(read.entities), read.n_dropped) == (MAX_ITEMS, 300 - MAX_ITEMS)


def test_texts_are_cut_at_the_bounds_of_the_schemas_at_the_end_of_a_sentence() -> None:
    sentence = "It stands where two rivers meet. "
    assert extraction(f"1|Weir|place|{sentence * 40}").entities[0].description == (sentence * 15).strip()
    endless = extraction(
        json.dumps({"entities": [{"name": "A", "type": "x", "description": " ".join(map(str, range(900)))}]})
    )
    assert len(endless.entities[0].description) <= DESCRIPTION_CHARS
    assert re.search(r"\d…\Z", endless.entities[0].description)


@pytest.mark.parametrize(
    ("written", "meant"), [("Person", "person"), ("person|place", "person"), ("disease", "disease")]
)
def test_of_several_types_the_first_that_was_asked_for_is_meant(written: str, meant: str) -> None:
    text = json.dumps({"entities": [{"name": "A", "type": written, "description": "a"}]})
    assert parse_extraction(ChatReply(text), types=("person", "place")).entities[0].type == meant


def test_numbers_go_on_from_the_entities_that_were_shown_before() -> None:
    known = (EntityRecord("A", "x", "a"), EntityRecord("B", "x", "b"))
    read = parse_extraction(ChatReply("3|C|x|c\n3-1 1-2|They met."), "", known)
    assert [(one.source, one.target) for one in read.relations] == [("C", "A"), ("A", "B")]
    assert [one.name for one in read.entities] == ["C"]


@pytest.mark.parametrize(
    "line", ["In 1914|18 they fought.", "1914-1918", "1.5|Scrooge", "a|b|c|d", "|---|---|", "12|", "5-6 of|them"]
)
def test_a_line_with_bars_or_numbers_is_no_record(line: str) -> None:
    with pytest.raises(MalformedReply, match="no record"):
        extraction(line)


def test_a_record_without_description_or_strength_is_read() -> None:
    read = extraction("entity<|>Paris<|>location\nrelation<|>Paris<|>France<|>Its capital.")
    assert read.entities == (EntityRecord("Paris", "location", ""),)
    assert read.relations == (RelationRecord("Paris", "France", "Its capital.", 0.0),)


@pytest.mark.parametrize(
    ("written", "read"),
    [("0", 0.1), ("-3", 0.1), ("11", 10.0), ("7.5", 7.5), ("(9)", 9.0), ("high", 1.0), ("nan", 1.0), ("inf", 10.0)],
)
def test_strength_is_kept_between_a_tenth_and_ten(written: str, read: float) -> None:
    assert extraction(f"relation<|>A<|>B<|>They met.<|>{written}").relations[0].strength == read
    data = {"relations": [{"source": "A", "target": "B", "description": "", "strength": written}]}
    assert extraction(json.dumps(data)).relations[0].strength == read


@pytest.mark.parametrize(
    "line",
    [
        "entity<|><|>person<|>No name.",
        f"entity<|>{'a' * 201}<|>person<|>A paragraph.",
        "entity<|>Scrooge",
        "relation<|>Scrooge<|> scrooge <|>Himself.<|>3",
        "the entity<|>Scrooge<|>person<|>In a sentence.",
        *(line for form in FORMATS.values() for line in form.splitlines() if "<|>" in line),
        '("entity"<|><entity_name><|><entity_type><|><entity_description>)',
    ],
)
def test_a_line_that_is_no_record_is_dropped_and_alone_refused(line: str) -> None:
    assert names(f"{line}\nentity<|>Marley<|>person<|>Dead.") == ["Marley"]
    assert not extraction(f"{line}\nentity<|>Marley<|>person<|>Dead.").relations
    with pytest.raises(MalformedReply, match=f"no record in the requested form|{ECHO}"):
        extraction(line)


@pytest.mark.parametrize("language", ["python", "bash"])
@pytest.mark.parametrize("end", ["\n```\n", "\n", ""])
def test_code_is_never_taken_for_records(language: str, end: str) -> None:
    code = f'```{language}\nrecords = """\nentity<|>Foo<|>person<|>Bar.\n"""\ndata = {json.dumps(AS_JSON)}{end}'
    with pytest.raises(MalformedReply, match="no record"):
        extraction(code)
    assert names("entity<|>Marley<|>person<|>Dead.\n" + code) == ["Marley"]
    if "```\n" in end:
        assert names(code + "entity<|>Marley<|>person<|>Dead.") == ["Marley"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (ChatReply(""), "the reply is empty"),
        (ChatReply("<think>Let me see"), "only thinking text"),
        (ChatReply(PLAIN, finish_reason="length"), "cut off at the token limit"),
        (ChatReply(PLAIN, finish_reason="content_filter"), "content filter"),
        (ChatReply("I'm sorry, but I can't help with that."), "the model refused"),
        (ChatReply(PLAIN + "\n" + "entity<|>Marley<|>person<|>Dead.\n" * 40), "repeats one line 40 times: entity"),
        (ChatReply("entity<|>Marley<|>person<|>He is dead" + " and dead" * 300), "ends in a loop"),
        (ChatReply(FORMATS["extract-graph"]), ECHO),
        (ChatReply("There is nothing here."), "no record in the requested form"),
        (ChatReply('{"entities": {"name": "Scrooge"}, "relations": []}'), "no record in the requested form"),
    ],
)
def test_unusable_replies_are_refused_with_the_reason(reply: ChatReply, reason: str) -> None:
    with pytest.raises(MalformedReply, match=reason):
        parse_extraction(reply)


@pytest.mark.parametrize("text", ["<|COMPLETE|>", ' {"entities": [], "relations": []}', '{"relations": []}'])
def test_a_reply_that_says_there_is_nothing_is_believed(text: str) -> None:
    assert extraction(text) == ExtractionReply((), ())


MEMBERS = ["Scrooge", "Bob Cratchit", "Tiny Tim"]


@pytest.mark.parametrize(
    "text",
    [
        "entity<|>Cratchit family<|>organization<|>A family.\n"
        "relation<|>2<|>Cratchit family<|>Father.<|>9\nrelation<|>3<|>Cratchit family<|>Son.<|>7",
        "entity<|>Cratchit family<|>organization<|>A family.\n"
        "relation<|>Bob  cratchit<|>“Cratchit Family”<|>Father.<|>9\nrelation<|>TINY TIM<|>Cratchit family<|>Son.<|>7",
        "Here it is:\n- entity|Cratchit family|Organization|A family.| 2, 3 ",
        "entity|Cratchit family|organization|A family.|2 3\nrelation<|>2<|>Cratchit family<|>Father.<|>9",
        json.dumps(
            {
                "entities": [{"name": "Cratchit family", "type": "Organization", "description": "A family."}],
                "relations": [
                    {"member": 2, "entity": "cratchit family", "description": "Father.", "strength": 9},
                    {"member": "3.", "entity": "Cratchit family", "description": "Son.", "strength": "7"},
                ],
            }
        ),
    ],
)
def test_a_summary_joins_members_by_number_or_name(text: str) -> None:
    summary = parse_summary(ChatReply(text), 3, MEMBERS)
    assert summary.entities == (EntityRecord("Cratchit family", "organization", "A family."),)
    assert [(cover.member, cover.entity) for cover in summary.covers] == [(1, 0), (2, 0)]
    described = (MemberLink(1, 0, "Father.", 9.0), MemberLink(2, 0, "Son.", 7.0))
    numbered = tuple(MemberLink(at, 0, COVERED, COVER_STRENGTH) for at in (1, 2))
    assert summary.covers == (described if "Son." in text else numbered)


def test_a_summary_without_relations_is_accepted_and_repeated_covers_keep_the_first() -> None:
    assert parse_summary(ChatReply("entity<|>Family<|>organization<|>X."), 3, MEMBERS).covers == ()
    once = "entity<|>Family<|>x<|>X.\nrelation<|>1<|>Family<|>a<|>2"
    twice = f"{once}\nrelation<|>1<|>family<|>b<|>3\nrelation<|>4<|>Family<|>c<|>5"
    assert parse_summary(ChatReply(twice), 3, MEMBERS).covers == (MemberLink(0, 0, "a", 2.0),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("relation<|>1<|>Family<|>x<|>3", "no summary entity"),
        ("entity<|>Family<|>x<|>X.\nrelation<|>0<|>Family<|>x<|>3\nrelation<|>4<|>Family<|>x<|>3", "joins a member"),
        ("entity<|>Family<|>x<|>X.\nrelation<|>1<|>Village<|>x<|>3", "joins a member"),
        ("entity|Family|x|X.|4 5", "joins a member"),
        (FORMATS["summarise"], ECHO),
    ],
)
def test_a_summary_that_says_nothing_of_its_members_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MalformedReply, match=reason):
        parse_summary(ChatReply(text), 3, MEMBERS)


@pytest.mark.parametrize(
    "text",
    [
        "title|Counting-house\nsummary|Two men work.\nfinding|Bob is cold.|No | coal.|E1 R2\n<|COMPLETE|>",
        "So:\n**title** | Counting-house\n- summary|Two men work.\n* finding | Bob is cold. | No | coal. | [E1], [R2]",
    ],
)
def test_a_report_is_read_from_records(text: str) -> None:
    report = parse_report(ChatReply(text))
    assert (report.title, report.summary, report.rating) == ("Counting-house", "Two men work.", None)
    assert report.findings == (ReportFinding("Bob is cold.", "No | coal.", ("E1", "R2")),)


def test_a_report_is_read_from_json_with_its_references_and_a_bounded_rating() -> None:
    data = {
        "title": "Counting-house",
        "summary": "Two men work.",
        "rating": "12/",
        "findings": [
            {"summary": "Bob is cold.", "explanation": "", "references": ["E1", "[R2]", 3]},
            {"summary": "He works.", "explanation": "No | coal.", "references": "E1 R2"},
            {"summary": "", "explanation": ""},
            "not a finding",
        ],
    }
    report = parse_report(ChatReply("```json\n" + json.dumps(data) + "\n```"))
    assert (report.title, report.summary, report.rating) == ("Counting-house", "Two men work.", 0.0)
    assert report.findings == (
        ReportFinding("Bob is cold.", "", ("E1", "R2", "3")),
        ReportFinding("He works.", "No | coal.", ("E1", "R2")),
    )
    assert parse_report(ChatReply(json.dumps(data | {"rating": 12}))).rating == 10.0
    assert parse_report(ChatReply(json.dumps(data | {"rating": -1}))).rating == 0.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A fine report.", "not hold one report"),
        ('```json\n{"title": "A", "summary": "B"}\n```\n```json\n{"title": "C", "summary": "D"}\n```', "not hold one"),
        ('{"title": "…", "summary": "…", "rating": 5.0}', ECHO),
        ('{"summary": "S", "title": ""}', "no title"),
        (FORMATS["report"], ECHO),
        ("title|A\nsummary|B\ntitle|C\nsummary|D", "not hold one"),
    ],
)
def test_a_report_without_its_parts_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MalformedReply, match=reason):
        parse_report(ChatReply(text))


def test_plain_text_keeps_its_code_and_loses_its_thinking() -> None:
    assert parse_text(ChatReply("<thinking>hm</thinking>Use:\n```python\nx = 1\n```")) == "Use:\n```python\nx = 1\n```"
    assert usable_text(ChatReply("I'm sorry: entity<|>A<|>b<|>c")).startswith("I'm sorry")


CHINESE = "entity<|>Scrooge<|>person<|>斯克鲁奇是一个住在伦敦的吝啬鬼，他讨厌圣诞节，也讨厌一切欢乐。\n" * 3
ENGLISH_TEXT = "Scrooge was a tight-fisted hand at the grindstone, and he hated the cheer of the season. " * 5


def test_descriptions_in_another_language_than_the_text_are_refused() -> None:
    with pytest.raises(
        MalformedReply, match=r"in Chinese or Japanese script, the text is in Latin script; descriptions"
    ):
        parse_extraction(ChatReply(CHINESE), ENGLISH_TEXT)
    assert len(parse_extraction(ChatReply(CHINESE)).entities) == 3
    with pytest.raises(MalformedReply, match="Latin script"):
        parse_summary(ChatReply(CHINESE), 1, ["Scrooge"], ENGLISH_TEXT)
    report = {"title": "斯克鲁奇", "summary": "斯克鲁奇是一个住在伦敦的吝啬鬼，他讨厌圣诞节，也讨厌一切欢乐。" * 3}
    with pytest.raises(MalformedReply, match="Latin script"):
        parse_report(ChatReply(json.dumps(report)), ENGLISH_TEXT)
    assert parse_report(ChatReply(json.dumps(report))).title == "斯克鲁奇"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("organization\nlegal principle\ncourt", ("organization", "legal principle", "court")),
        ("1. Organization\n2) Court.\n- **Statute**\n• court", ("organization", "court", "statute")),
        ('```json\n["person", "place", "Event"]\n```', ("person", "place", "event")),
    ],
)
def test_kinds_are_read_from_lists_of_any_form(text: str, kinds: tuple[str, ...]) -> None:
    assert parse_meta_types(ChatReply(text)) == kinds


@pytest.mark.parametrize(
    "text", ["court\nstatute", "I have read them all\nThey tell of courts and law\nIt is hard to tell\na\nb\nc"]
)
def test_what_is_no_list_of_kinds_is_refused(text: str) -> None:
    with pytest.raises(MalformedReply, match="no list of kinds"):
        parse_meta_types(ChatReply(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("answer<|>yes<|>both are the agency\n<|COMPLETE|>", SameEntityReply(True, "both are the agency")),
        ("- Answer<|>Yes<|>one man", SameEntityReply(True, "one man")),
        ("Here it is:\nanswer<|>no<|>two kings\nDone.", SameEntityReply(False, "two kings")),
        ('{"same": true, "reason": "one\\nagency"}', SameEntityReply(True, "one agency")),
        ('```json\n{"same": "no", "reason": "kings"}\n```', SameEntityReply(False, "kings")),
        ('<think>Perhaps.</think>{"same": false}', SameEntityReply(False, "")),
    ],
)
def test_answers_on_whether_two_entities_are_one(text: str, expected: SameEntityReply) -> None:
    assert parse_same(ChatReply(text)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Yes, they are.", "does not hold one answer"),
        ("answer<|>perhaps<|>hard to say", "neither yes nor no: perhaps"),
        ("answer<|>yes<|>a\nanswer<|>no<|>b", "does not hold one answer"),
        (FORMATS["same-entity"], "does not hold one answer"),
        ('{"same": null}', "neither yes nor no"),
        ("", "empty"),
    ],
)
def test_what_is_no_such_answer_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MalformedReply, match=reason):
        parse_same(ChatReply(text))
