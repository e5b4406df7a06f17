"""A question with what was said before it, as one text: its form, and how it is made shorter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

EARLIER: Final = "Earlier questions:"
LAST_REPLY: Final = "Last reply: "
QUESTION: Final = "Question: "


def shorter_history(question: str, fits: Callable[[str], bool]) -> str:
    r"""Return a question with as much of what was said before it as fits; the question itself stays whole.

    The oldest of the earlier questions go first, then the last reply. A text without a history stays as it is.

    Args:
        question: Lines that begin with `EARLIER`, "- " for each earlier question, `LAST_REPLY` and `QUESTION`.
        fits: Whether a text is short enough.

    >>> shorter_history("Earlier questions:\n- Who?\n- Where?\nQuestion: When?", lambda text: len(text) < 45)
    'Earlier questions:\n- Where?\nQuestion: When?'
    """
    before, mark, last = question.partition(f"\n{QUESTION}")
    if not mark or not before.startswith(f"{EARLIER}\n"):
        return question
    lines = before.split("\n")[1:]
    while lines and not fits(question):
        lines.pop(0)
        asked = any(not line.startswith(LAST_REPLY) for line in lines)
        head = [EARLIER, *lines] if asked else lines
        question = "\n".join([*head, f"{QUESTION}{last}"]) if lines else last
    return question
