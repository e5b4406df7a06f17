"""The maximum tokens of a reply that a request names."""

from __future__ import annotations

from hirag_dist.llm.endpoints.openai_chat import ReplyLimit


def words(text: str) -> int:
    return len(text.split())


PROMPT = ["instructions " * 100, "a text of the user " * 100]  # 608 tokens, with those of the template


def test_without_a_known_window_the_request_decides() -> None:
    limit = ReplyLimit(None, words)
    assert (limit.of(PROMPT, 5000), limit.of(PROMPT, None)) == (5000, None)


def test_prompt_and_reply_fit_a_small_window() -> None:
    limit = ReplyLimit(1024, words)
    room = limit.of(PROMPT, 5000)
    assert room is not None
    assert 608 * 1.25 + room <= 1024
    assert limit.of(PROMPT, None) == room
    assert limit.of(PROMPT, 50) == 50


def test_a_model_that_counts_more_tokens_than_expected_gets_shorter_replies() -> None:
    limit = ReplyLimit(1024, words)
    before = limit.of(PROMPT, 5000)
    limit.learn(PROMPT, 608 * 3 // 2)
    after = limit.of(PROMPT, 5000)
    assert before is not None
    assert after is not None
    assert after < before
    assert 608 * 1.5 + after <= 1024
