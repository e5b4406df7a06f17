"""Files of questions and of recorded answers: usual names, named fields, and what is wrong with them, counted."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.errors import InputError
from hirag_dist.evaluation import questions
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_recorded
from hirag_dist.evaluation.questions import Question, QuestionFields, Questions, read_questions
from tests.evaluation.corpora import write_lines


def written(path: Path, *records: Any) -> str:
    return str(write_lines(path, list(records)))


def read(folder: Path, records: list[Any], fields: QuestionFields | None = None, limit: int | None = None) -> Questions:
    return read_questions(written(folder / "q.jsonl", *records), fields, limit)


def test_examples() -> None:
    assert doctest.testmod(questions).failed == 0


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            {"question_id": "m1", "question": " Who? ", "answer": "A. Hall", "answer_aliases": ["Hall", "A. Hall"]}
            | {"answerable": True, "gold_passage_ids": ["p1", "P 2"], "n_hops": 2},
            Question("m1", "Who?", "", ("A. Hall", "Hall"), ("p1", "P 2"), True),
        ),
        (
            {"id": "x", "text": "When?", "answer": ["1755", 1756], "gold": "only", "answerable": "false"},
            Question("x", "When?", "", ("1755", "1756"), ("only",), False),
        ),
        ({"input": "Why?"}, Question("#0", "Why?")),
    ],
)
def test_usual_names(tmp_path: Path, record: dict[str, Any], expected: Question) -> None:
    assert read(tmp_path, [record]).items == (expected,)


def test_a_named_field_that_no_record_has_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no record .* has the field 'nope' for the gold"):
        read(tmp_path, [{"question": "Who?"}], QuestionFields(gold="nope"))


def test_what_is_wrong_is_counted_and_the_rest_is_asked(tmp_path: Path) -> None:
    records = [
        {"id": "a", "question": "Who?", "answer": "x", "gold": ["1"]},
        "{broken",
        {"id": "a", "question": "Who?"},  # a copy
        {"id": "a", "question": "What?"},  # another question under the same id
        {"id": "a", "question": "What?"},  # a copy of a question whose id was taken
        {"id": "b", "question": "Who?"},  # the same question under another id
        {"id": "c", "question": "  "},
        {"id": "d", "answer": "no question"},
    ]
    found = read(tmp_path, records)
    assert [(question.id, question.text) for question in found.items] == [
        ("a", "Who?"),
        ("a #3", "What?"),
        ("b", "Who?"),
    ]
    assert [(each.record, each.reason.split(":")[0]) for each in found.unreadable] == [
        (1, "line 2 is not valid JSON"),
        (6, "no question in field 'question'"),
        (7, "no question; it has"),
    ]
    assert found.counts == {
        "questions": 3,
        "unreadable": 3,
        "copies": 2,
        "ids_used_twice": 1,
        "texts_used_twice": 1,
        "without_gold": 2,
        "without_answer": 2,
    }


QUESTIONS = [Question("q1", "Who?"), Question("q2", "Why?")]


def test_methods_come_from_the_option_the_record_or_the_file(tmp_path: Path) -> None:
    named = written(tmp_path / "x.jsonl", {"query_id": "q1", "method": "m", "answer": "Ann."})
    many = written(
        tmp_path / "y.jsonl",
        {"query_id": "q1", "method": "m", "answer": "Bob."},
        {"question_id": "q1", "method": "n", "response": "Cleo."},
    )
    file = written(tmp_path / "plain.jsonl", {"id": "q1", "query": "Who?", "answer": "Dan."})
    sets = AnswerCollections()
    assert not add_recorded(sets, [("ours", named), (None, many), (None, file)], QUESTIONS)
    assert {method: answers["q1"] for method, answers in sets.answers.items()} == {
        "ours": "Ann.",
        "m": "Bob.",
        "n": "Cleo.",
        "plain": "Dan.",
    }


def test_the_text_of_a_question_comes_with_the_answer_or_from_the_question_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", {"question": "Who?", "answer": "Ann."})
    sets = AnswerCollections()
    add_recorded(sets, [(None, path)])
    assert sets.texts == {"Who?": "Who?"}, "the text stands for an id"
    path = written(tmp_path / "b.jsonl", {"query_id": "q1", "answer": "Ann."})
    with pytest.raises(InputError, match="text of question 'q1' is not known; give the question file"):
        add_recorded(AnswerCollections(), [(None, path)])
    add_recorded(sets := AnswerCollections(), [(None, path)], QUESTIONS)
    assert sets.texts == {"q1": "Who?", "q2": "Why?"}
