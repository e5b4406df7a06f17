"""Map-reduce over a whole corpus: points from each part, gathered into one context (GraphRAG paper §3.1.6, §4.1.2).

The input is the community reports of one level, or all chunks. They are shuffled and cut into parts (`PartBudget`); for
each part a model returns points that help to answer, with a helpfulness of 0 to 100 (`parse_points`); the most helpful
points are the context of the final answer (`gather_points`). The paper scores the answer of a part as a whole; here
each point has a score, as in GraphRAG's code, so that a helpful point is not lost among others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.prompts.records import json_object
from hirag_dist.core.prompts.reply_validation import MalformedReply, usable_text
from hirag_dist.core.retrieval.citations import CitationReader
from hirag_dist.core.retrieval.levels import CommunityIndex
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.types import ChatReply, IntVector

_REF = re.compile(r"\[([CS]\d+)\]")
_FILLERS = frozenset({"", "…", "..."})  # of the form, not filled in


def reports_at(index: CommunityIndex, level: str, reported: NDArray[np.bool_]) -> tuple[IntVector, IntVector]:
    """Return the communities whose reports stand for the whole corpus at a level, and those for which none does.

    Communities that are not split as far down as the level stand for themselves (C1–C3 of the GraphRAG paper, §4.1.2).
    Where a community has no visible report, those of its sub-communities replace it.

    Args:
        level: a number, 0 the coarsest; leaf: the communities that are not split; all: those of every level.
        reported: (n_communities,) whether there is a visible report.

    Returns:
        Both ascending. The second are communities that are not split further, whose reports would have been read.
    """
    has_community = np.diff(index.of_indptr) > 0
    deeper = np.ones(len(index.of), np.bool_)
    deeper[index.of_indptr[:-1][has_community]] = False  # the first of a row's communities is the coarsest
    at = np.flatnonzero(deeper)
    parents = np.full(len(index.levels), -1, np.int64)
    parents[index.of[at]] = index.of[at - 1]
    whole = np.ones(len(index.levels), np.bool_)
    whole[index.of[at - 1]] = False
    if level == "all":
        return np.flatnonzero(reported), np.flatnonzero(whole & ~reported)
    wanted = whole if level == "leaf" else (index.levels == int(level)) | (whole & (index.levels < int(level)))
    missing = wanted & ~reported
    chosen = wanted & reported
    for depth in range(1, int(index.levels.max(initial=0)) + 1):
        below = (index.levels == depth) & (parents >= 0) & missing[parents]
        chosen |= below & reported
        missing |= below & ~reported
    return np.flatnonzero(chosen), np.flatnonzero(missing & whole)


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """The records of one call.

    Attributes:
        refs: of its records, "C4" or "S4"; a number stands for one record in all parts.
    """

    refs: tuple[str, ...]
    context: str
    tokens: int


class PartBudget:
    """Cuts records into parts in order, without omissions: a record too long for a part continues in the next.

    The continuation has the same reference.
    """

    def __init__(self, heading: str, max_tokens: int, count_tokens: Callable[[str], int]) -> None:
        """Begin without parts."""
        self.parts: list[CorpusPart] = []
        self._count = count_tokens
        self._heading = heading
        self._begun = count_tokens(heading) + 1
        self._room = max_tokens - self._begun
        self._lines: list[str] = []
        self._refs: list[str] = []
        self._used = 0

    def add(self, ref: str, text: str, tokens: int) -> None:
        """Append a record.

        Args:
            text: of the record, which begins with a space.
        """
        mark = f"[{ref}]"
        mark_tokens = self._count(mark) + 1
        if self._used and self._used + mark_tokens + tokens > self._room:
            self._end()
        while mark_tokens + tokens > self._room and len(text) > 1:
            head, text = self._split(text, tokens, self._room - mark_tokens)
            self._put(ref, mark + head, mark_tokens + self._count(head))
            self._end()
            text = f" … {text}"
            tokens = self._count(text)
        self._put(ref, mark + text, mark_tokens + tokens)

    def finish(self) -> tuple[CorpusPart, ...]:
        """Return the parts."""
        self._end()
        return tuple(self.parts)

    def _put(self, ref: str, line: str, tokens: int) -> None:
        self._lines.append(line)
        self._refs.append(ref)
        self._used += tokens

    def _end(self) -> None:
        if self._lines:
            context = "\n".join([self._heading, *self._lines])
            self.parts.append(CorpusPart(tuple(dict.fromkeys(self._refs)), context, self._begun + self._used))
            self._lines, self._refs, self._used = [], [], 0

    def _split(self, text: str, tokens: int, room: int) -> tuple[str, str]:
        """Return a beginning of at most `room` tokens, cut at white space where there is some, and the rest."""
        end = max(len(text) * room // tokens, 1)
        while end > 1 and self._count(text[:end]) > room:
            end = max(end * 9 // 10, 1)
        space = max(text.rfind(" ", 0, end), text.rfind("\n", 0, end))
        end = space if space > end // 2 else end
        return text[:end].rstrip() or text[:end], text[end:].lstrip()


@dataclass(frozen=True, slots=True)
class AnswerPoint:
    """A point of an answer, with references as `[C1]` to the records of its part.

    Attributes:
        helpfulness: 0 to 100.
    """

    text: str
    helpfulness: float
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MappedPart:
    """The points of one part.

    Attributes:
        points: helpful ones, in the model's order.
        uncited: number of points without a reference, which are left out.
        dropped: number of unknown references, which are removed.
    """

    points: tuple[AnswerPoint, ...] = ()
    uncited: int = 0
    dropped: int = 0


def parse_points(reply: ChatReply, refs: Collection[str]) -> MappedPart:
    """Return the points of a reply, without those of helpfulness 0 and those without a reference.

    Raises:
        MalformedReply: the reply is not in the form, a helpfulness is no number from 0 to 100, or no point cites
            anything.
    """
    data = json_object(usable_text(reply))
    items = None if data is None else data.get("points")
    if not isinstance(items, list):
        raise MalformedReply("there is no JSON object with a list of points")
    points: list[AnswerPoint] = []
    helpful = dropped = 0
    for item in items:
        if not isinstance(item, Mapping) or not isinstance(item.get("text"), str):
            raise MalformedReply("a point is not an object with a text")
        score = _helpfulness(item.get("helpfulness"))
        if not score:
            continue
        if item["text"].strip() in _FILLERS:
            raise MalformedReply("a point has no text")
        helpful += 1
        reader = CitationReader(refs)
        text = one_line(reader.feed(item["text"]) + reader.finish())
        dropped += reader.dropped
        if reader.cited:
            points.append(AnswerPoint(text, score, tuple(reader.cited)))
    if helpful and not points:
        raise MalformedReply("no point cites a record of the context, as in [C1] or [S1]")
    return MappedPart(tuple(points), helpful - len(points), dropped)


def _helpfulness(value: object) -> float:
    try:
        score = float(str(value).strip().removesuffix("%"))
    except ValueError:
        raise MalformedReply(f"a point's helpfulness is {str(value)[:40]!r}, not a number") from None
    if not 0 <= score <= 100:
        raise MalformedReply(f"a point's helpfulness is {score:g}, not from 0 to 100")
    return score


@dataclass(frozen=True, slots=True)
class GatheredPoints:
    """The context of a final answer.

    Attributes:
        refs: reference in the context → reference in the parts, in the order of the context.
        helpfulness: by reference in the context, of the best point that cites it.
        cited_by: by reference in the context, how many points cite it.
        left_out: number of points that did not fit.
    """

    context: str
    tokens: int
    refs: Mapping[str, str]
    helpfulness: Mapping[str, float]
    cited_by: Mapping[str, int]
    left_out: int


def gather_points(points: Sequence[AnswerPoint], max_tokens: int, count_tokens: Callable[[str], int]) -> GatheredPoints:
    """Return the most helpful points as a context, until it is full; the best is cut where it alone is too long.

    References are numbered from 1 in the order of the context.

    Args:
        points: of all parts, in their order, which decides between equally helpful ones.
    """
    lines = ["## Points"]
    used = count_tokens(lines[0]) + 1
    refs: dict[str, str] = {}  # of the parts → of the context
    best: dict[str, float] = {}
    cited_by: dict[str, int] = {}
    order = sorted(points, key=lambda point: -point.helpfulness)
    taken = 0
    for point in order:
        known = dict(refs)
        for ref in point.refs:
            known.setdefault(ref, f"{ref[0]}{len(known) + 1}")
        line = f"- (helpfulness {point.helpfulness:g}) {_renumbered(point.text, known)}"
        size = count_tokens(line) + 1
        if used + size > max_tokens:
            if taken:
                break
            refs_of = "".join(f"[{known[ref]}]" for ref in point.refs)
            room = max_tokens - used - 1 - count_tokens(refs_of)
            whole, n_chars = line, len(line) * room // size
            line = f"{shorten(whole, n_chars)}{refs_of}"
            while count_tokens(line) > max_tokens - used - 1 and n_chars > 1:
                n_chars = n_chars * 9 // 10
                line = f"{shorten(whole, n_chars)}{refs_of}"
            size = count_tokens(line) + 1
        lines.append(line)
        used += size
        taken += 1
        refs = known
        for ref in point.refs:
            best.setdefault(refs[ref], point.helpfulness)
            cited_by[refs[ref]] = cited_by.get(refs[ref], 0) + 1
    if not taken:
        return GatheredPoints("", 0, {}, {}, {}, 0)
    back = {new: old for old, new in refs.items()}
    context = "\n".join(lines)
    return GatheredPoints(context, count_tokens(context), back, best, cited_by, len(order) - taken)


def _renumbered(text: str, names: Mapping[str, str]) -> str:
    return _REF.sub(lambda match: f"[{names.get(match[1], match[1])}]", text)
