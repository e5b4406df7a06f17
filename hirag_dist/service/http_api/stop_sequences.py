"""Stop sequences of a request: the text of an answer ends before the first of them. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hirag_dist.wire._pb import query_pb2 as pb


class StopReader:
    """Passes on the pieces of a streamed text up to the first stop sequence.

    Characters that may be the beginning of a sequence are kept back until the next piece.

    Args:
        stops: the sequences, without empty ones.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._kept = ""
        self._stopped = False

    def feed(self, piece: str) -> str:
        """Return the text that can be shown after another piece; it may be empty."""
        if self._stopped:
            return ""
        text = self._kept + piece
        shown = cut_text(text, self._stops)
        self._stopped = len(shown) < len(text)
        if self._stopped:
            self._kept = ""
            return shown
        for start in range(max(len(text) - self._longest + 1, 0), len(text)):
            if any(stop.startswith(text[start:]) for stop in self._stops):
                self._kept = text[start:]
                return text[:start]
        self._kept = ""
        return text

    def end(self) -> str:
        """Return the text that was kept back."""
        kept, self._kept = self._kept, ""
        return kept


def cut_text(text: str, stops: Sequence[str]) -> str:
    r"""Return a text up to the first stop sequence.

    >>> cut_text("The keeper.\nObservation: none", ["\nObservation", "END"])
    'The keeper.'
    """
    found = re.search("|".join(map(re.escape, stops)), text) if stops else None
    return text if found is None else text[: found.start()]


def cut_answer(answer: pb.FinalAnswer, stops: Sequence[str]) -> pb.FinalAnswer:
    """Return an answer whose text ends before the first stop sequence, with the citations of that text."""
    text = cut_text(answer.text, stops)
    if text == answer.text:
        return answer
    cut = pb.FinalAnswer()
    cut.CopyFrom(answer)
    cut.text, cut.finish_reason = text, "stop"
    del cut.citations[:]
    cut.citations.extend(each for each in answer.citations if f"[{each.ref}]" in text)
    return cut
