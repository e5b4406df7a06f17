"""`eval questions`: questions that need an understanding of a whole corpus, made from a description of it.

GraphRAG paper, Algorithm 1: K users, N tasks of each, M questions of each user in each task. What the model repeats is
left out, and what is missing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hirag_dist.core.prompts.requests import listing_request, parse_list
from hirag_dist.core.text.normalize import count_noun, one_line, shorten
from hirag_dist.errors import InputError
from hirag_dist.evaluation.kinds.claims import rouge_tokens
from hirag_dist.evaluation.kinds.judge import ROLE
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, WorkUnit, json_line
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


Parts = tuple[tuple[str, str], ...]  # (tag, text) of a prompt


async def make_questions(session: Session, description: str, wanted: GenerationOptions) -> Findings:
    """Make questions on what a description tells of, and write them into the evaluation's folder as a question file.

    The role `judge` makes them. A text that differs from an earlier one in spelling only is left out; tasks may be
    those of several users.

    Raises:
        StoreError: the folder cannot be written to.
    """
    structured = await session.structured(ROLE)
    repeated = 0  # items that the model named again
    short: dict[str, int] = {}  # how many users, tasks and questions lack

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
        units = []
        for parts in lists:
            about = ": ".join(shorten(one_line(text), 40) for _, text in parts[1:]) or "the collection"
            units.append(WorkUnit(about, {"parts": parts, "count": count, "asks": asks}, parts))
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
    width = len(str(len(asked)))
    rows = [
        {"question_id": f"s{number:0{width}d}", "question": text, "persona": parts[1][1], "task": parts[2][1]}
        for number, (parts, text) in enumerate(asked, start=1)
    ]
    with Store(session.order.out).create(FILE) as file:
        for row in rows:
            file.write(json_line(row))
    results = {
        "file": f"{session.order.out}/{FILE}",
        "questions": len(rows),
        "wanted": wanted.personas * wanted.tasks * wanted.questions,
        "short": short,
        "repeated": repeated,
        "description": description,
    }
    return _findings(results, rows)


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
    documents = count_noun(snapshot.manifest.counts["documents"], "document")
    return "\n".join([f"A collection of {documents}. Reports on its main communities:", *lines])


def _findings(results: Mapping[str, Any], rows: Sequence[Mapping[str, str]]) -> Findings:
    short = [results["short"][key] for key in _KEYS.values()]
    counts = Table(
        "Questions",
        ["wanted", "made", "users short", "tasks short", "questions short", "repeated, left out"],
        [[results["wanted"], len(rows), *short, results["repeated"]]],
        f"Written to {results['file']}, which --questions of the other kinds reads.",
    )
    shown = [[row["question_id"], row["persona"], row["task"], row["question"]] for row in rows]
    sections: list[Section] = [
        counts,
        Text("What the model was told of the corpus", results["description"].splitlines()),
        Table("All questions", ["id", "user", "task", "question"], shown),
    ]
    return Findings(results, sections, [counts])
