"""Question files: usual names, named fields, and what is wrong with them, counted."""

from __future__ import annotations

import doctest
import json
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.errors import InputError
from hirag_dist.evaluation import questions
from hirag_dist.evaluation.questions import Question, QuestionFields, Questions, read_questions


def read(folder: Path, records: list[Any], fields: QuestionFields | None = None, limit: int | None = None) -> Questions:
    file = folder / "q.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in records))
    return read_questions(str(file), fields, limit)


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
        (5, "no question in field 'question'"),
        (6, "no question; it has"),
    ]
    assert found.counts == {
        "questions": 3,
        "unreadable": 3,
        "copies": 1,
        "ids_used_twice": 1,
        "texts_used_twice": 1,
        "without_gold": 2,
        "without_answer": 2,
    }
