"""Thinking in replies, whole and piece by piece."""

from __future__ import annotations

import pytest

from hirag_dist.core.text.thinking import ThinkingReader, without_thinking

ANSWER = "The keeper lit the lamp [S1]."
THINKING = {
    "opened": f"<think>Who was it? The keeper.</think>\n\n{ANSWER}",
    "opened in capitals": f"<THINKING>\nHm.\n</THINKING>{ANSWER}",
    "in brackets": f"[THINK]Hm.[/THINK]{ANSWER}",
    "twice": f"<think>Hm.</think>\n<think>Ah.</think>\n{ANSWER}",
    "opened in the prompt": f"Who was it? The keeper.</think>\n\n{ANSWER}",
    "opened in the prompt, longer": f"Okay, so they ask about {'the lamp and ' * 30}the keeper.\n</think>\n{ANSWER}",
    "channels": "<|channel|>analysis<|message|>Who?<|end|><|start|>assistant<|channel|>final<|message|>"
    f"{ANSWER}<|return|>",
    "channels after a start": f"<|start|>assistant<|channel|>commentary<|message|>Hm<|end|><|start|>assistant"
    f"<|channel|>final<|message|>{ANSWER}<|end|>",
    "none": ANSWER,
    "none, but as thinking begins": "I do not know who lit it. Who lit the lamp is not said.",
}


def read(text: str, n_chars: int) -> str:
    reader = ThinkingReader()
    pieces = [reader.feed(text[at : at + n_chars]) for at in range(0, len(text), n_chars)]
    return "".join([*pieces, reader.finish()])


@pytest.mark.parametrize("n_chars", [1, 7, 10_000])
@pytest.mark.parametrize("text", THINKING.values(), ids=THINKING)
def test_thinking_is_left_out_of_whole_replies_and_of_streams(text: str, n_chars: int) -> None:
    expected = text if text.startswith("I do") else ANSWER
    assert without_thinking(text) == expected
    assert read(text, n_chars).strip() == expected


@pytest.mark.parametrize("text", ["<think>Who was it?", "<|channel|>analysis<|message|>Who was it?"])
def test_a_reply_that_only_thinks_is_empty(text: str) -> None:
    assert without_thinking(text) == ""
    assert read(text, 3) == ""


def test_an_answer_is_shown_as_it_comes() -> None:
    reader = ThinkingReader()
    assert reader.feed("The keeper lit the lamp. It ") == "The keeper lit the lamp. It "
    assert reader.feed("is <think> and </think> old") == "is <think> and </think> old"


def test_a_prompt_that_opens_the_thinking_holds_back_until_it_is_closed() -> None:
    reader = ThinkingReader(opened=True)
    assert reader.feed("The keeper, it seems. That is all that the text says of it. ") == ""
    assert reader.feed("</think>\n\nThe keeper.") == "The keeper."
    assert reader.unopened


PROSE = ["Its reasoning ends with </think> in every reply.", "It ends with `</think>`, which a server removes."]
QUOTING = [
    '{"entities": [{"name": "Lock Bot", "description": "It ends with </think>"}, {"name": "Weir"}], "relations": []}',
    "1|Weir Bot|technology|It runs.\n2|Lock Bot|technology|Its reasoning ends with </think> in\n1-2|Both answer.",
]


@pytest.mark.parametrize(
    ("before", "text"),
    [
        *(("", text) for text in PROSE + QUOTING),
        *(("<think>Which bots are there?</think>\n", text) for text in QUOTING),
        *(("Which bots are there?\n</think>\n\n", text) for text in QUOTING),
    ],
)
def test_a_quoted_mark_is_no_thinking(before: str, text: str) -> None:
    assert without_thinking(before + text).strip() == text
