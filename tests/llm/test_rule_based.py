"""The built-in model as a whole: which tasks it does, and that it always says the same."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys

import pytest

from hirag_dist.core.prompts.reply_parsing import (
    COVERED,
    EntityRecord,
    ExtractionReply,
    parse_extraction,
    parse_report,
    parse_summary,
    parse_text,
)
from hirag_dist.core.prompts.requests import answer_request, map_request, reduce_request
from hirag_dist.core.prompts.templates import (
    DONE,
    Prompts,
    describe_request,
    extraction_request,
    report_request,
    summary_request,
)
from hirag_dist.core.retrieval.map_reduce import AnswerPoint, MappedPart, gather_points, parse_points
from hirag_dist.core.text.normalize import name_key
from hirag_dist.errors import RequestRejected
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.llm.rule_based.finder import extract_records, find_entities
from hirag_dist.llm.rule_based.language import split_sentences
from hirag_dist.types import ChatReply, ChatRequest, FoundName, Message

TEXT = (
    "Ebenezer Scrooge kept a counting-house in London. Bob Cratchit, his clerk, lived in Camden Town with Tiny Tim. "
    "The Ghost of Jacob Marley came on Christmas Eve. Scrooge met the Ghost; Cratchit met Tiny Tim. 孙悟空大闹天宫。"
)


def everything() -> str:
    """Return a digest of one reply to each task."""
    prompts = Prompts()
    members = [(name, "person", TEXT) for name in ("Ebenezer Scrooge", "Bob Cratchit", "Tiny Tim", "Jacob Marley")]
    lines = [f"E{number}. {name} (person): {text}" for number, (name, _, text) in enumerate(members, start=1)]
    requests = [
        extraction_request("extract-graph", TEXT * 5, prompts, ["person", "location"], None),
        summary_request(members, prompts, ["person"], "summarise"),
        report_request(lines, [], [], prompts, "report"),
        answer_request("Where did Bob Cratchit live?", f"[S1] Carol\n{TEXT}", prompts),
    ]
    replies = "\n".join(reply_to(request.messages, request.form) for request in requests)
    return hashlib.sha256(replies.encode()).hexdigest()


@pytest.mark.integration
def test_the_same_in_every_process() -> None:
    program = f"import runpy; print(runpy.run_path({__file__!r})['everything']())"
    digests = set()
    for seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert digests == {everything()}


def test_refuses_what_needs_a_language_model_or_names_no_task() -> None:
    for task in ("judge", "claims", "questions"):
        messages = [Message("system", f"Task: {task}\n\nDo it."), Message("user", "text")]
        with pytest.raises(RequestRejected, match="needs a language model; configure"):
            reply_to(messages, None)
    with pytest.raises(RequestRejected, match="Task"):
        reply_to([Message("user", "Hello!")], None)


ENGLISH = (
    "Ebenezer Scrooge was a miser in London. Scrooge met the ghost of Jacob Marley on Christmas Eve. "
    "Marley was the partner of Scrooge. Bob Cratchit worked for Scrooge in London."
)
ARABIC = (
    "ولد نجيب محفوظ في القاهرة عام 1911. كتب نجيب محفوظ رواية أولاد حارتنا. نال نجيب محفوظ جائزة نوبل في الأدب. "
    "تدور أحداث رواية أولاد حارتنا في القاهرة. جائزة نوبل في الأدب هي أرفع جائزة أدبية."
)
KOREAN = (
    "훈민정음은 1446년에 반포되었다. 세종대왕은 훈민정음을 만들었다. 세종대왕은 집현전 학자들과 함께 연구하였다. "
    "집현전은 경복궁에 있었다. 경복궁은 서울에 있다."
)
THAI = (
    "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย กรุงเทพมหานครตั้งอยู่บนแม่น้ำเจ้าพระยา แม่น้ำเจ้าพระยาไหลลงสู่อ่าวไทย "
    "ประเทศไทยมีพระมหากษัตริย์เป็นประมุข รัชกาลที่ 1 ทรงสถาปนากรุงเทพมหานคร"
)
CHINESE = (
    "孙悟空大闹天宫。玉帝大怒，命天王捉拿孙悟空。孙悟空道：“俺老孙来也！”玉帝又差金星招安，"
    "金星奏玉帝道：“孙悟空有神通。”众神见孙悟空来，都怕他。唐僧叫声孙悟空，却不见玉帝。"
)


def find(text: str) -> dict[str, FoundName]:
    found = find_entities(split_sentences(text))
    assert all(one.places for one in found)
    assert len({name_key(one.name) for one in found}) == len(found)
    return {one.name: one for one in found}


@pytest.mark.parametrize(
    ("text", "types"),
    [
        (ENGLISH, {"Ebenezer Scrooge": "person", "Bob Cratchit": "person", "London": "location"}),
        ("He studied at the University of Bonn for years.", {"University of Bonn": "organization"}),
        ("The prize went to J. Lee Thompson that year.", {"J. Lee Thompson": "person"}),
        ("The shop was bought by Acme Motors Inc last week.", {"Acme Motors Inc": "organization"}),
    ],
)
def test_names_of_english_with_their_types(text: str, types: dict[str, str]) -> None:
    found = find(text)
    assert {name: found[name].type for name in types} == types
    assert next(iter(found)) == next(iter(types)), "the one that is named most"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (ARABIC, {"نجيب محفوظ", "رواية أولاد حارتنا", "القاهرة", "جائزة نوبل"}),
        (KOREAN, {"훈민정음", "집현전", "경복궁"}),
        (THAI, {"กรุงเทพมหานคร", "แม่น้ำเจ้าพระยา", "ประเทศไทย"}),
    ],
)
def test_names_of_writing_without_capitals(text: str, names: set[str]) -> None:
    assert names <= find(text).keys()


def test_chinese_names_come_first() -> None:
    first, second, *_ = find(CHINESE).values()
    assert (first.name, first.type, second.name) == ("孙悟空", "person", "玉帝")


def test_descriptions_are_sentences_that_hold_the_name() -> None:
    lines = split_sentences(ENGLISH)
    reply = extract_records(ENGLISH, TYPES)
    described = {entity.name: entity.description for entity in reply.entities}
    assert described["Jacob Marley"] == " ".join(lines[1:3])
    assert all(0 < len(description) <= 240 for description in described.values())
    assert all(entity.type in TYPES for entity in reply.entities)
    names = set(described)
    assert reply.relations
    assert all(relation.source in names and relation.target in names for relation in reply.relations)
    assert all(1 <= relation.strength <= 10 for relation in reply.relations)


TYPES = ["organization", "person", "location", "event", "technology", "concept"]
CAST = ["Anna Bell", "Carl Dahl", "Eva Fox", "Gustav Hall", "Ida Jung", "Karl Lund", "Mona Nyman", "Oskar Park"]
TOWNS = ["Vienna", "Prague", "Munich", "Dresden", "Leipzig", "Hamburg", "Bremen", "Lisbon", "Madrid", "Naples"]
STORY = " ".join(
    f"{CAST[number % 8]} travelled to {TOWNS[number % 10]} in order to meet {CAST[(number * 3 + 1) % 8]} there. "
    f"The night train was late again, and the night train was cold."
    for number in range(40)
)
LISTED = (("Anna Bell", "person"), ("Vienna", "location"), ("Carl Dahl", "person"), ("Nobody", "person"))


def request(task: str, form: str | None, text: str = STORY) -> ChatRequest:
    return extraction_request(task, text, Prompts(), TYPES, form, LISTED if "relations" in task else ())


def read(request: ChatRequest) -> tuple[str, ExtractionReply]:
    """Return the reply as text, and as the records read with the entities that the request lists."""
    text = reply_to(request.messages, request.form)
    known = [EntityRecord(*pair, "") for pair in LISTED if "extract-relations" in request.messages[0].content]
    return text, parse_extraction(ChatReply(text), "", known)


def test_both_forms_say_the_same() -> None:
    _, first = read(request("extract-graph", None))
    assert read(request("extract-graph", "extract-graph"))[1] == first
    types = {one.name: one.type for one in first.entities}
    assert (types["Anna Bell"], types["Vienna"], types["night train"]) == ("person", "location", "concept")


@pytest.mark.parametrize("task", ["extract-graph", "extract-entities", "extract-relations"])
@pytest.mark.parametrize("json", [False, True])
def test_every_record_is_read_back(task: str, json: bool) -> None:
    text, extraction = read(request(task, task if json else None))
    if not json:
        lines = text.split("\n")
        assert lines[-1] == DONE
        n_pairs = sum(len(line.split("|")[0].split()) for line in lines[:-1])
        assert len(extraction.entities) + len(extraction.relations) == n_pairs
    assert bool(extraction.entities) == (task != "extract-relations")
    assert bool(extraction.relations) == (task != "extract-entities")


@pytest.mark.parametrize("text", ["", "1234 5678, 9."])
@pytest.mark.parametrize("form", [None, "extract-graph"])
def test_a_text_about_nothing_gives_an_empty_reply(text: str, form: str | None) -> None:
    reply, extraction = read(request("extract-graph", form, text))
    assert extraction == ExtractionReply((), ())
    assert form is not None or reply == DONE


HIVE = [
    ("queen cell", "concept", "A queen cell is built by the honey bee colony before swarming."),
    ("swarming", "concept", "Swarming is how a honey bee colony multiplies."),
    ("worker", "concept", "The worker feeds the brood of the honey bee colony."),
    ("drone", "concept", "A drone leaves the honey bee colony to mate."),
]


@pytest.mark.parametrize("form", [None, "summarise"])
def test_names_a_cluster_by_what_its_members_share(form: str | None) -> None:
    request = summary_request(HIVE, Prompts(), TYPES, form)
    members = [name for name, _, _ in HIVE]
    summary = parse_summary(ChatReply(reply_to(request.messages, form)), len(HIVE), members)
    (entity,) = summary.entities
    assert entity.type == "concept"
    assert any(shared in name_key(entity.name) for shared in ("honey bee", "bee colony"))
    assert name_key(entity.name) not in map(name_key, members)
    assert {cover.member for cover in summary.covers} == {0, 1, 2, 3}
    assert all(1 <= cover.strength <= 10 for cover in summary.covers)
    assert "swarming" in entity.description.lower()


def test_describe_keeps_the_distinct_sentences_within_the_limit() -> None:
    texts = [
        "Scrooge is a miser who lives in London.",
        "Scrooge is a miser who lives in London.",
        "Scrooge is a miser living in London.",
        "Scrooge employs Bob Cratchit in London.",
    ]
    request = describe_request("Scrooge", "person", texts, Prompts(), 20)
    text = parse_text(ChatReply(reply_to(request.messages, None)))
    assert text.count("miser") == 1
    assert "Bob Cratchit" in text
    assert len(text.split()) <= 20


ENTITIES = [
    "E1. Ebenezer Scrooge (person): Ebenezer Scrooge is a miser in London.",
    "E2. Bob Cratchit (person): Bob Cratchit is the clerk of Scrooge.",
    "E3. Tiny Tim (person): Tiny Tim is the youngest son of Bob Cratchit.",
]
RELATIONS = [
    "R1. E1-E2: Scrooge employs Bob Cratchit for fifteen shillings a week.",
    "R2. Bob Cratchit — Tiny Tim: Bob Cratchit carries Tiny Tim on his shoulder.",
]
REPORTS = ["C1. Marley's ghost (level 1): The ghost of Jacob Marley warns Scrooge.\nIt drags a chain."]
CONTEXT = """\
## Entities
[E1] Ebenezer Scrooge (person, layer 0): Ebenezer Scrooge is a miser in London.
[E2] Bob Cratchit (person, layer 0): Bob Cratchit is the clerk of Scrooge.

## Relations
[R1] Ebenezer Scrooge — Bob Cratchit: Scrooge employs Bob Cratchit for fifteen shillings a week.

## Reports
[C1] Marley and Scrooge (level 0, rating 7.5)
Jacob Marley was the partner of Scrooge. Marley has been dead for seven years.

## Sources
[S1] A Christmas Carol, characters 10–200
Marley was dead, to begin with. The register of his burial was signed by the clergyman and the undertaker.
[S2] A Christmas Carol, characters 300–900
The cold within him froze his old features. Foul weather did not know where to have him [1].
"""


def answer_to(question: str, context: str = CONTEXT) -> str:
    request = answer_request(question, context, Prompts())
    return reply_to(request.messages, None)


def test_report_names_its_main_entities_and_cites_its_records() -> None:
    requests = [report_request(ENTITIES, RELATIONS, REPORTS, Prompts(), form) for form in (None, "report")]
    report, in_json = (parse_report(ChatReply(reply_to(each.messages, each.form))) for each in requests)
    assert report == in_json
    assert "Bob Cratchit" in report.title
    assert "clerk" in report.summary
    assert report.rating is None, "it is not asked for"
    assert 2 <= len(report.findings) <= 6
    known = {line.split(".")[0] for line in (*ENTITIES, *RELATIONS, *REPORTS)}
    assert all(finding.references and set(finding.references) <= known for finding in report.findings)
    assert any("R1" in finding.references for finding in report.findings)


@pytest.mark.parametrize(
    ("question", "words", "reference"),
    [
        ("Who signed the register of Marley's burial?", "clergyman", "[S1]"),
        ("How much does Scrooge pay Bob Cratchit, how many shillings a week?", "fifteen shillings", "[R1]"),
    ],
)
def test_answers_with_cited_sentences(question: str, words: str, reference: str) -> None:
    text = answer_to(question)
    assert words in text
    assert reference in text
    cited = re.findall(r"\[([A-Z]\d+)\]", text)
    assert 1 <= len(cited) <= 5
    assert set(cited) <= {"E1", "E2", "R1", "C1", "S1", "S2"}


def test_a_link_to_a_member_is_no_sentence_of_an_answer() -> None:
    link = f"[R2] Bob Cratchit — Clerks of Scrooge: {COVERED}\n\n## Reports"
    text = answer_to("Who are the clerks of Scrooge?", CONTEXT.replace("\n## Reports", link))
    assert "Bob Cratchit is the clerk of Scrooge. [E2]" in text
    assert COVERED not in text


@pytest.mark.parametrize("question", ["What is the capital of Mongolia?", "Who?", "", "Which enzymes digest lactose?"])
def test_says_that_it_does_not_know(question: str) -> None:
    assert answer_to(question) == "I do not know."


COMMUNITIES = """\
## Communities
[C4] Marley and Scrooge (level 0, rating 7.5)
Jacob Marley was the partner of Scrooge. Marley has been dead for seven years.
[C9] The Cratchits (level 0, rating 6)
Bob Cratchit is the clerk of Scrooge. Tiny Tim is his youngest son.
"""


def mapped(question: str) -> MappedPart:
    request = map_request(question, COMMUNITIES, Prompts(), 1000)
    return parse_points(ChatReply(reply_to(request.messages, request.form)), {"C4", "C9"})


def test_points_are_sentences_with_the_record_they_are_from() -> None:
    found = mapped("Who was the partner of Scrooge?")
    assert found.points[0] == AnswerPoint("Jacob Marley was the partner of Scrooge. [C4]", 100.0, ("C4",))
    assert all(0 < point.helpfulness <= 100 for point in found.points)
    assert (found.uncited, found.dropped) == (0, 0)


@pytest.mark.parametrize("question", ["Which volcano erupted in Iceland?", "???"])
def test_a_part_that_holds_nothing_of_the_question_has_no_points(question: str) -> None:
    assert mapped(question).points == ()


def test_the_answer_is_the_best_points_and_says_nothing_twice() -> None:
    points = [
        AnswerPoint("Bob Cratchit is the clerk of Scrooge. [C9]", 40.0, ("C9",)),
        AnswerPoint("Jacob Marley was the partner of Scrooge. [C4][C9]", 100.0, ("C4", "C9")),
        AnswerPoint("Jacob Marley was once the partner of Scrooge. [C2]", 90.0, ("C2",)),
    ]
    context = gather_points(points, 1000, lambda text: len(text.split())).context
    request = reduce_request("Who was the partner of Scrooge?", context, Prompts())
    best, other = "Jacob Marley was the partner of Scrooge. [C1][C2]", "Bob Cratchit is the clerk of Scrooge. [C2]"
    assert reply_to(request.messages, None) == f"{best} {other}"
