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


def test_pairs_meet_in_the_questions_that_both_answered(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl",
        {"query_id": "q2", "method": "m", "answer": "x"},
        {"query_id": "q1", "method": "m", "answer": "x"},
        {"query_id": "q2", "method": "n", "answer": "x"},
    )
    add_recorded(sets := AnswerCollections(), [(None, path)], QUESTIONS)
    assert sets.questions_of("m") == ["q1", "q2"], "in the order of the questions"
    assert sets.questions_of("m", "n") == ["q2"]
    assert sets.counts == {"m": 2, "n": 1}


def test_a_silent_answer_is_an_answer_and_a_second_one_is_not(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl",
        {"query_id": "q1", "answer": ""},
        {"query_id": "q1", "answer": ""},
        {"query_id": "q2", "answer": "one"},
        {"query_id": "q2", "answer": "two"},
        {"query_id": "q3", "answer": "three"},
        {"query_id": "q1", "answer": None},
        {"answer": "four"},
        {"said": "five"},
    )
    sets = AnswerCollections()
    unreadable = add_recorded(sets, [("m", path)], QUESTIONS)
    assert sets.answers == {"m": {"q1": "", "q2": "one"}}
    assert sets.copies == 1
    assert [each.record for each in unreadable] == [3, 4, 5, 6, 7]
    reasons = [each.reason for each in unreadable]
    assert reasons[0] == "m answers question 'q2' a second time, in other words"
    assert reasons[1] == "the question file has no question 'q3'"
    assert reasons[2] == "no answer in field 'answer'"
    assert reasons[3] == "neither an id of its question nor the question"
    assert reasons[4] == "no answer; it has: said"
