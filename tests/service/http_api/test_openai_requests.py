"""The rule that makes one question of a conversation."""

from __future__ import annotations

import pytest

from hirag_dist.service.http_api.openai_replies import citation_marks, model_list, source_list
from hirag_dist.service.http_api.openai_requests import MAX_QUESTION_CHARACTERS, Turn, question_in, standalone_question
from hirag_dist.wire._pb import query_pb2 as pb


def turns(*pairs: tuple[str, str]) -> list[Turn]:
    return [Turn(role, text) for role, text in pairs]


def test_a_first_question_is_asked_as_it_stands() -> None:
    assert standalone_question(turns(("system", "Be brief."), ("user", " Why?\n"))) == " Why?\n"
    assert standalone_question(turns(("user", "Why?"), ("assistant", "It"))) == "Why?", "a reply that was begun"


@pytest.mark.parametrize("conversation", [[], turns(("system", "x")), turns(("user", " "), ("assistant", "x"))])
def test_without_a_question(conversation: list[Turn]) -> None:
    with pytest.raises(ValueError, match="role user"):
        standalone_question(conversation)


def test_long_conversations_are_shortened() -> None:
    pairs = [
        pair for n in range(50) for pair in (("user", f"question {n} " + "word " * 300), ("assistant", "x" * 9000))
    ]
    question = standalone_question(turns(*pairs, ("user", "last " * 50)))
    assert question.count("\n- ") == 3
    assert "question 49" in question
    assert "question 46" not in question
    assert len(question) < 3 * MAX_QUESTION_CHARACTERS + 600 + 250 + 80


RULES = (
    "Every block must use this format:\n1. The file path alone on a line, verbatim.\n2. The lines to search for.\n" * 30
)
FILES = "".join(
    f"src/part_{n}.py:\n│class Part{n}(Base):\n│    def run(self, found: int = 0) -> None\n" for n in range(200)
)


@pytest.mark.parametrize("asked", ["Who lit the lamp?", "灯台守は誰ですか？", "Who kept it, and why did she leave?"])
def test_the_question_in_much_other_text(asked: str) -> None:
    """As an assistant for code asks: rules around the question, and a map of files as a message of its own."""
    conversation = turns(
        ("system", RULES),
        ("user", f"Here are summaries of some files.\n\n{FILES}"),
        ("assistant", "Ok, I will not edit these files."),
        ("user", f"{asked}\n\n{RULES}"),
    )
    assert standalone_question(conversation) == asked
    assert standalone_question(turns(("user", f"{FILES}\n\n{asked}\n\n{RULES}"))) == asked
    assert standalone_question(turns(("user", f"<files>\n{FILES}</files>\n<question>{asked}</question>\n"))) == asked
    assert question_in(f"{RULES}\nIs it so?\nQuestion: Name who lit the lamp\n{RULES}") == "Name who lit the lamp"


def ids(*entries: pb.IndexEntry) -> list[str]:
    return [model["id"] for model in model_list(entries, 0)["data"]]


def test_each_index_is_a_model_with_each_mode() -> None:
    found = ids(pb.IndexEntry(name="cases"), pb.IndexEntry(name="law/de", title="Laws", default=True))
    assert found[:2] == ["hirag", "hirag/hirag"], "the default index"
    assert {"cases", "cases/naive", "law/de", "law/de/graphrag-local"} <= set(found)
    assert len(found) == len(set(found))
    assert ids(pb.IndexEntry(name="cases"))[0] == "cases", "there is no default index"
    named = ids(pb.IndexEntry(name="hirag"), pb.IndexEntry(name="laws", default=True))
    assert len(named) == len(set(named)), "an index that is named as the default one otherwise is"
    (laws, *_) = model_list([pb.IndexEntry(name="laws", title="Laws of the land")], 0)["data"]
    assert laws["name"] == "Laws of the land"


def test_the_list_of_sources() -> None:
    page = pb.Place(link="a.pdf#page=7")
    marked = pb.Place(link="b.html#:~:text=The%20lamp")
    cited = [
        pb.Citation(ref="S1", kind="chunk", title="A", places=[page]),
        pb.Citation(ref="S2", kind="chunk", title="B", places=[marked]),
        pb.Citation(ref="E1", kind="entity", id="e1", title="Ada"),
    ]
    assert source_list(cited) == "\n\nSources:\n[S1] A (a.pdf#page=7)\n[S2] B (b.html)\n[E1] Ada"
    assert source_list([]) == ""


def test_places_count_characters() -> None:
    (mark,) = citation_marks("灯台守 𝔘 [S1] [S9]", [pb.Citation(ref="S1", kind="chunk", id="k", title="Log")])
    assert (mark["start_index"], mark["end_index"], mark["title"]) == (6, 10, "Log")
