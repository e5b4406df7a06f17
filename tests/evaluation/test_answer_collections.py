"""Recorded answers: whose they are, to which question, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hirag_dist.errors import InputError
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_recorded
from hirag_dist.evaluation.questions import Question

QUESTIONS = [Question("q1", "Who?"), Question("q2", "Why?")]


def lines(path: Path, *records: object) -> str:
    path.write_text("\n".join(json.dumps(record) for record in records))
    return str(path)


def test_methods_come_from_the_option_the_record_or_the_file(tmp_path: Path) -> None:
    named = lines(tmp_path / "x.jsonl", {"query_id": "q1", "method": "m", "answer": "Ann."})
    many = lines(
        tmp_path / "y.jsonl",
        {"query_id": "q1", "method": "m", "answer": "Bob."},
        {"question_id": "q1", "method": "n", "response": "Cleo."},
    )
    file = lines(tmp_path / "plain.jsonl", {"id": "q1", "query": "Who?", "answer": "Dan."})
    sets = AnswerCollections()
    assert not add_recorded(sets, [("ours", named), (None, many), (None, file)], QUESTIONS)
    assert {method: answers["q1"] for method, answers in sets.answers.items()} == {
        "ours": "Ann.",
        "m": "Bob.",
        "n": "Cleo.",
        "plain": "Dan.",
    }


def test_the_text_of_a_question_comes_with_the_answer_or_from_the_question_file(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", {"question": "Who?", "answer": "Ann."})
    sets = AnswerCollections()
    add_recorded(sets, [(None, path)])
    assert sets.texts == {"Who?": "Who?"}, "the text stands for an id"
    path = lines(tmp_path / "b.jsonl", {"query_id": "q1", "answer": "Ann."})
    with pytest.raises(InputError, match="text of question 'q1' is not known; give the question file"):
        add_recorded(AnswerCollections(), [(None, path)])
    add_recorded(sets := AnswerCollections(), [(None, path)], QUESTIONS)
    assert sets.texts == {"q1": "Who?", "q2": "Why?"}
