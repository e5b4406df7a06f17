"""The rule that makes one question of a conversation."""

from __future__ import annotations

import pytest

from hirag_dist.service.http_api.conversation import MAX_QUESTION_CHARACTERS, Turn, standalone_question


def turns(*pairs: tuple[str, str]) -> list[Turn]:
    return [Turn(role, text) for role, text in pairs]


def test_earlier_questions_and_the_last_reply_go_in_front() -> None:
    conversation = turns(
        ("system", "You are a pirate."),
        ("user", "Who lit\nthe lamp?"),
        ("assistant", "The keeper [E2], says the log [S1]."),
        ("user", "Where was she born?"),
        ("assistant", "On the rock [E1][S4]."),
        ("user", "And when was it built?\n"),
    )
    assert standalone_question(conversation) == (
        "Earlier questions:\n- Who lit the lamp?\n- Where was she born?\n"
        "Last reply: On the rock.\nQuestion: And when was it built?"
    )
    assert standalone_question(conversation, history=False) == "And when was it built?\n"


def test_a_first_question_is_asked_as_it_stands() -> None:
    assert standalone_question(turns(("system", "Be brief."), ("user", " Why?\n"))) == " Why?\n"
    assert standalone_question(turns(("user", "Why?"), ("assistant", "It"))) == "Why?", "a reply that was begun"


def test_long_conversations_are_shortened() -> None:
    pairs = [
        pair for n in range(50) for pair in (("user", f"question {n} " + "word " * 500), ("assistant", "x" * 9000))
    ]
    question = standalone_question(turns(*pairs, ("user", "last " * 50)))
    assert question.count("\n- ") == 3
    assert "question 49" in question
    assert "question 46" not in question
    assert len(question) < 3 * MAX_QUESTION_CHARACTERS + 600 + 250 + 80


@pytest.mark.parametrize("conversation", [[], turns(("system", "x")), turns(("user", " "), ("assistant", "x"))])
def test_without_a_question(conversation: list[Turn]) -> None:
    with pytest.raises(ValueError, match="role user"):
        standalone_question(conversation)
