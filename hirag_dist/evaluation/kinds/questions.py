"""`eval questions`: questions that need an understanding of a whole corpus, made from a description of it.

GraphRAG paper, Algorithm 1: K users, N tasks of each, M questions of each user in each task. What the model repeats is
left out and asked for again, a few times; what is missing then is counted. Each round has the answers of the one before
in its requests, so the same replies give the same questions, whatever the order they come in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hirag_dist.core.prompts.evaluation_requests import listing_request, parse_list
from hirag_dist.core.text.normalize import count_noun, one_line, shorten
from hirag_dist.errors import InputError
from hirag_dist.evaluation.kinds.judge import ROLE
from hirag_dist.evaluation.metrics.overlap import rouge_tokens
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, WorkUnit
from hirag_dist.html import Section, Table, Text
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Rejected

FILE: Final = "questions.jsonl"
ROUNDS: Final = 3  # times that a list is asked for: what still lacks then is a shortfall
DESCRIPTION_TOKENS: Final = 2000  # of reports that stand for a description
_KEYS: Final = {"personas": "personas", "tasks": "tasks", "sensemaking-questions": "questions"}


@dataclass(frozen=True)
class GenerationOptions:
    """K, N and M of Algorithm 1."""

    personas: int = 5
    tasks: int = 5
    questions: int = 5

    @property
    def total(self) -> int:
        """Questions in all."""
        return self.personas * self.tasks * self.questions


@dataclass
class _List:
    """A list that is filled: the users, the tasks of one, or the questions of one in one task.

    Attributes:
        parts: further parts of the prompt.
        items: found so far.
        elsewhere: what was named and stands in another list, so that it is not named again.
        dead: whether a call for it failed, so that it is not asked for again in this run.
    """

    parts: list[tuple[str, str]]
    wanted: int
    items: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    dead: bool = False

    @property
    def missing(self) -> int:
        return max(self.wanted - len(self.items), 0)

    @property
    def known(self) -> list[str]:
        """Items that a further call must not repeat."""
        return [*self.items, *self.elsewhere]


@dataclass(frozen=True, slots=True)
class GeneratedQuestion:
    """A question, and whom it was made for."""

    text: str
    persona: str
    task: str


@dataclass(frozen=True)
class GeneratedQuestions:
    """Generated and missing items.

    Attributes:
        questions: in the order of users, tasks and questions.
        wanted: how many there should be.
        repeated: items that the model named again, and that were left out.
        short: how many users, tasks and questions lack of those that were asked for.
    """

    questions: tuple[GeneratedQuestion, ...]
    wanted: int
    repeated: int
    short: Mapping[str, int]


class _Making:
    """Fills lists, round by round."""

    def __init__(self, session: Session, form: bool) -> None:
        self.repeated = 0
        self.short: dict[str, int] = {}
        self._session = session
        self._form = form

    async def fill(self, task: str, lists: Sequence[_List], apart: bool) -> None:
        """Fill the lists of one task.

        Args:
            apart: whether an item may stand in several lists; else it stands in the first alone.
        """
        seen: set[tuple[str, ...]] = set()
        own: list[set[tuple[str, ...]]] = [set() if apart else seen for _ in lists]
        for round_ in range(ROUNDS):
            open_ = [number for number, each in enumerate(lists) if each.missing and not each.dead]
            if not open_:
                break
            found = await self._ask(task, round_, [(number, lists[number]) for number in open_])
            for number in open_:  # in order, not as replies come
                lists[number].dead = number not in found
                self._take(lists[number], found.get(number, []), own[number])
        self.short[_KEYS[task]] = sum(each.missing for each in lists)

    def _take(self, into: _List, texts: Sequence[str], seen: set[tuple[str, ...]]) -> None:
        for text in texts:
            words = _words(text)
            if words in seen or not words:
                self.repeated += 1
                if words and words not in map(_words, into.known):
                    into.elsewhere.append(text)
            elif into.missing:
                seen.add(words)
                into.items.append(text)

    async def _ask(self, task: str, round_: int, lists: Sequence[tuple[int, _List]]) -> dict[int, list[str]]:
        """Return the lists of the model, by number; a list whose call failed is missing, and is a dead letter."""
        session, key = self._session, _KEYS[task]

        async def ask(item: tuple[int, _List]) -> dict[str, Any] | Rejected:
            each = item[1]
            request = listing_request(
                task,
                each.parts,
                each.missing,
                each.known,
                session.prompts,
                form=task if self._form else None,
                replicate=round_,
            )
            found = await session.pool.ask(request, lambda reply: parse_list(reply, key))
            return found if isinstance(found, Rejected) else {key: found}

        step = key if not round_ else f"{key}-{round_ + 1}"
        outcomes = await session.map(step, self._units(task, round_, lists), ask)
        return {outcome.item[0]: outcome.value[key] async for outcome in outcomes}

    def _units(
        self, task: str, round_: int, lists: Sequence[tuple[int, _List]]
    ) -> Iterator[WorkUnit[tuple[int, _List]]]:
        asks = self._session.asks(ROLE, task)
        for number, each in lists:
            decides = {
                "parts": each.parts,
                "count": each.missing,
                "known": each.known,
                "round": round_,
                "asks": asks,
            }
            about = [shorten(one_line(text), 40) for tag, text in each.parts if tag != "description"]
            yield WorkUnit(": ".join(about) or "the collection", decides, (number, each))


def _words(text: str) -> tuple[str, ...]:
    """Return the normal form of a text, equal for texts that differ in spelling only."""
    return tuple(rouge_tokens(text))


async def make_questions(session: Session, description: str, wanted: GenerationOptions) -> GeneratedQuestions:
    """Return questions on what a description tells of; the role `judge` makes them."""
    making = _Making(session, await session.structured(ROLE))
    told = ("description", description)
    users = _List([told], wanted.personas)
    await making.fill("personas", [users], apart=False)
    tasks = [_List([told, ("user", user)], wanted.tasks) for user in users.items]
    await making.fill("tasks", tasks, apart=True)
    lists = [_List([*each.parts, ("task", task)], wanted.questions) for each in tasks for task in each.items]
    await making.fill("sensemaking-questions", lists, apart=False)
    made = tuple(GeneratedQuestion(text, each.parts[1][1], each.parts[2][1]) for each in lists for text in each.items)
    return GeneratedQuestions(made, wanted.total, making.repeated, making.short)


def describe_corpus(snapshot: Snapshot, count_tokens: Callable[[str], int]) -> str:
    """Describe a corpus by the broadest reports of its index, highest rated first, as many as fit.

    Raises:
        InputError: the index has no reports.
    """
    reports = snapshot.table("reports", ["level", "rating", "title", "summary", "community_id"]).to_pylist()
    reports.sort(key=lambda row: (row["level"], -row["rating"], row["community_id"]))
    lines: list[str] = []
    left = DESCRIPTION_TOKENS
    for row in reports:
        line = f"- {one_line(row['title'])}: {one_line(row['summary'])}"
        cost = count_tokens(line) + 1
        if cost > left:
            continue
        left -= cost
        lines.append(line)
    if not lines:
        raise InputError("the index has no reports to describe its corpus by; give --description TEXT or @FILE")
    said = (
        f"A collection of {count_noun(snapshot.manifest.counts['documents'], 'document')}. Reports on its "
        "main communities:"
    )
    return "\n".join([said, *lines])


def question_findings(session: Session, made: GeneratedQuestions, description: str) -> Findings:
    """Write the questions into the evaluation's folder as a question file; return what is reported of them.

    Raises:
        StoreError: the folder cannot be written to.
    """
    width = len(str(len(made.questions)))
    rows = [
        {"question_id": f"s{number:0{width}d}", "question": each.text, "persona": each.persona, "task": each.task}
        for number, each in enumerate(made.questions, start=1)
    ]
    with Store(session.order.out).create(FILE) as file:
        for row in rows:
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "replace"))
    results = {
        "file": f"{session.order.out}/{FILE}",
        "questions": len(rows),
        "wanted": made.wanted,
        "short": dict(made.short),
        "repeated": made.repeated,
        "description": description,
    }
    counts = Table(
        "Questions",
        ["wanted", "made", "users short", "tasks short", "questions short", "repeated, left out"],
        [[made.wanted, len(rows), *(made.short.get(key, 0) for key in _KEYS.values()), made.repeated]],
        f"Written to {session.order.out}/{FILE}, which --questions of the other kinds reads.",
    )
    shown = [[row["question_id"], row["persona"], row["task"], row["question"]] for row in rows]
    sections: list[Section] = [
        counts,
        Text("What the model was told of the corpus", description.splitlines()),
        Table("All questions", ["id", "user", "task", "question"], shown),
    ]
    return Findings(results, sections, [counts])
