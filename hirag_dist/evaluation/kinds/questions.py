"""`eval questions`: questions that need an understanding of a whole corpus, made from a description of it.

GraphRAG paper, Algorithm 1: K users, N tasks of each, M questions of each user in each task. What the model repeats is
left out, and what is missing is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hirag_dist.core.prompts.requests import listing_request, parse_list
from hirag_dist.core.text.normalize import count_noun, one_line, shorten
from hirag_dist.errors import InputError
from hirag_dist.evaluation.kinds.claims import rouge_tokens
from hirag_dist.evaluation.kinds.judge import ROLE
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, WorkUnit
from hirag_dist.html import Section, Table, Text
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Rejected

FILE: Final = "questions.jsonl"
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
        repeated: Number of items that the model named again, and that were left out.
        short: how many users, tasks and questions lack of those that were asked for.
    """

    questions: tuple[GeneratedQuestion, ...]
    wanted: int
    repeated: int
    short: Mapping[str, int]


Parts = tuple[tuple[str, str], ...]  # (tag, text) of a prompt


async def make_questions(session: Session, description: str, wanted: GenerationOptions) -> GeneratedQuestions:
    """Return questions on what a description tells of; the role `judge` makes them.

    A text that differs from an earlier one in spelling only is left out; tasks may be those of several users.
    """
    structured = await session.structured(ROLE)
    repeated = 0
    short: dict[str, int] = {}

    async def fill(task: str, lists: Sequence[Parts], count: int, apart: bool) -> list[tuple[Parts, str]]:
        """Return the items of each list, each behind the parts of its prompt; a list whose call failed has none."""
        nonlocal repeated
        key = _KEYS[task]

        async def ask(parts: Parts) -> dict[str, Any] | Rejected:
            form = task if structured else None
            request = listing_request(task, parts, count, session.prompts, form=form)
            found = await session.pool.ask(request, lambda reply: parse_list(reply, key))
            return found if isinstance(found, Rejected) else {key: found}

        asks = session.asks(ROLE, task)
        units = [WorkUnit(_about(parts), {"parts": parts, "count": count, "asks": asks}, parts) for parts in lists]
        found: list[tuple[Parts, str]] = []
        seen: set[tuple[str, ...]] = set()
        async for outcome in await session.map(key, units, ask):
            seen = set() if apart else seen
            n_before = len(found)
            for text in outcome.value[key]:
                words = tuple(rouge_tokens(text))
                if words in seen or not words:
                    repeated += 1
                elif len(found) - n_before < count:
                    seen.add(words)
                    found.append((outcome.item, text))
        short[key] = count * len(lists) - len(found)
        return found

    users = await fill("personas", [(("description", description),)], wanted.personas, apart=False)
    tasks = await fill("tasks", [(*parts, ("user", user)) for parts, user in users], wanted.tasks, apart=True)
    lists = [(*parts, ("task", task)) for parts, task in tasks]
    asked = await fill("sensemaking-questions", lists, wanted.questions, apart=False)
    made = tuple(GeneratedQuestion(text, parts[1][1], parts[2][1]) for parts, text in asked)
    return GeneratedQuestions(made, wanted.total, repeated, short)


def _about(parts: Parts) -> str:
    return ": ".join(shorten(one_line(text), 40) for _, text in parts[1:]) or "the collection"


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
