"""Thinking that a model writes into its reply, before what it was asked for.

Models mark it: `<think>…</think>`, `[THINK]…[/THINK]`, channels (`<|channel|>analysis<|message|>…`). The opening mark
may stand in the prompt, so that the reply begins in the middle of the thinking and has the closing mark alone. A mark
counts only before the first record or sentence of the reply itself: a reply that quotes `</think>` is no thinking.
"""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = ("think", "thinking", "reasoning", "thought")
_MARKS: Final = {f"<{name}>": f"</{name}>" for name in _NAMES} | {"[think]": "[/think]", "◁think▷": "◁/think▷"}
_OPEN: Final = re.compile(
    r"^[ \t]*(<(?:think|thinking|reasoning|thought)>|\[think\]|◁think▷)", re.IGNORECASE | re.MULTILINE
)
_CLOSE: Final = re.compile(r"</(?:think|thinking|reasoning|thought)>|\[/THINK\]|◁/think▷", re.IGNORECASE)
_QUOTED: Final = re.compile(r"[ \t]*[\"'`,.;:)\]’”»]|[ \t]+[^\W\dA-Z]")  # what follows a mark that a sentence quotes
_CHANNEL: Final = re.compile(r"\s*(?:<\|start\|>\s*assistant\s*)?<\|channel\|>")
_FINAL: Final = re.compile(r"<\|channel\|>\s*final\b[^<]*<\|message\|>")
_CONTROL: Final = re.compile(r"<\|(?:end|return|start|im_end|eot_id|endoftext)\|>(?:assistant)?")
_CONTROL_CHARS = 32  # of a control mark that has not come whole
_MIN_OPENING_CHARS = 40  # of a reply, by which it is decided whether it may be thinking
_SENTENCE_END: Final = re.compile(r"[.!?。！？]\s|\n")
# How a model begins to think: it speaks of itself and of its task, or asks itself something.
_LIKE_THINKING: Final = re.compile(
    r"(?:okay|ok|alright|right|hmm+|well|so|now|let(?:['’]s| me| us)|first|i|we|the user|the question|the task"
    r"|thinking|looking|based on my)\b|[^.!\n]{1,200}\?|好|嗯|首先|用户|我",
    re.IGNORECASE,
)


def without_thinking(text: str) -> str:
    r"""Return a reply without what the model thought aloud, and without white space around it.

    >>> without_thinking("<think>Hm.</think> Yes."), without_thinking("Hm.\n</think>\n\nYes.")
    ('Yes.', 'Yes.')
    >>> without_thinking("It ends with </think> in every reply.")
    'It ends with </think> in every reply.'
    """
    if _CHANNEL.match(text):
        final = _FINAL.search(text)
        return "" if final is None else _CONTROL.sub("", text[final.end() :]).strip()
    while True:
        opened = _OPEN.search(text)
        before = text[: opened.start()] if opened else ""
        if opened is not None and "|" not in before and "{" not in before:
            end = _end_of(_MARKS[opened[1].lower()], text, opened.end())
            text = before + ("" if end is None else text[end:])
            continue
        closed = _unopened(text)
        if closed is None:
            return text.strip()
        text = text[closed:]


class ThinkingReader:
    """Reads a reply piece by piece, and gives back the pieces that are no thinking.

    A reply whose thinking was opened in the prompt shows that only by its closing mark. One that begins as thinking
    does is held back until that mark or its end; every other is shown as it comes.

    Attributes:
        unopened: Whether a closing mark without an opening one was found.
    """

    def __init__(self, opened: bool = False) -> None:
        """Begin a reply; `opened` says that the model's prompt opens its thinking."""
        self.unopened = False
        self._opened = opened
        self._held = ""
        self._close = ""  # the mark that ends the present thinking
        self._state = "start"

    def feed(self, piece: str) -> str:
        """Return the text that may be shown now."""
        if self._state == "shown":
            return piece
        self._held += piece
        return self._step(last=False)

    def finish(self) -> str:
        """Return the rest of the text."""
        return self._step(last=True)

    def _step(self, last: bool) -> str:
        while True:
            state = self._state
            if state == "start":
                self._begin(last)
            elif state == "thinking":
                end = _end_of(self._close, self._held, 0)
                if end is None:
                    return ""
                self._held, self._state, self._opened = self._held[end:].lstrip(), "start", False
            elif state == "perhaps":
                end = _unopened(self._held)
                if end is not None:
                    self.unopened = True
                    self._held, self._state = self._held[end:].lstrip(), "shown"
                elif last:
                    self._state = "shown"
            elif state == "channels":
                final = _FINAL.search(self._held)
                if final is not None:
                    self._held, self._state = self._held[final.end() :], "final"
            elif state == "final":
                return self._without_control(last)
            else:
                ready, self._held = self._held, ""
                return ready
            if self._state == state:
                return ""

    def _begin(self, last: bool) -> None:
        """Decide how the reply begins, if enough of it has come."""
        text = self._held.lstrip()
        lower = text.lower()
        mark = next((mark for mark in _MARKS if lower.startswith(mark)), "")
        if mark:
            self._held, self._close, self._state = text[len(mark) :], _MARKS[mark], "thinking"
        elif _CHANNEL.match(text):
            self._state = "channels"
        elif self._opened:
            self._state = "perhaps"
        elif last or not (
            lower.startswith("<|start|>")
            or any(mark.startswith(lower) for mark in (*_MARKS, "<|channel|>", "<|start|>"))
            or (len(text) < _MIN_OPENING_CHARS and not _SENTENCE_END.search(text))
        ):
            self._state = "perhaps" if _LIKE_THINKING.match(text) or _unopened(text) is not None else "shown"

    def _without_control(self, last: bool) -> str:
        text = _CONTROL.sub("", self._held)
        begun = -1 if last else text.rfind("<|", max(len(text) - _CONTROL_CHARS, 0))
        begun = len(text) - 1 if begun < 0 and not last and text.endswith("<") else begun
        self._held = "" if begun < 0 else text[begun:]
        return text if begun < 0 else text[:begun]


def _end_of(mark: str, text: str, start: int) -> int | None:
    found = text.lower().find(mark, start)
    return None if found < 0 else found + len(mark)


def _unopened(text: str) -> int | None:
    """Return where thinking ends whose opening mark stood in the prompt; None where the text has no such mark."""
    if text.lstrip().startswith(("{", "[{", "```")):
        return None
    for mark in _CLOSE.finditer(text):
        line = text[text.rfind("\n", 0, mark.start()) + 1 : mark.start()]
        in_record = "|" in line or line.replace('\\"', "").count('"') % 2 == 1
        if not (in_record or _QUOTED.match(text, mark.end())):
            return mark.end()
    return None
