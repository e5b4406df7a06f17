"""Answers to compare: recorded ones from files, and those of an index, made once for all comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final

from hirag_dist.errors import InputError
from hirag_dist.evaluation.questions import Question, rows_of, strings
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import SystemUnderTest, Trial, trial_units
from hirag_dist.readers import Unreadable, clean_text
from hirag_dist.readers.document_builder import find_field
from hirag_dist.types import Query

STEP: Final = "answers"
_PROMPTS: Final = ("answer", "map-answer", "reduce-answer")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("question_id", "query_id", "qid", "id", "_id"),
    "question": ("question", "query"),
    "answer": ("answer", "response", "prediction", "predicted_answer", "output", "result"),
    "method": ("method", "system", "mode", "model"),
}


@dataclass
class AnswerCollections:
    """Answers by method and question.

    Attributes:
        answers: method → question id → answer; an empty text is an answer that says nothing.
        texts: question id → its text, of all questions that are known.
        copies: answers left out since their method had answered the question before, in the same words.
        in_part: method → answers that lack some part of the index, whose call failed (map-reduce modes).
    """

    answers: dict[str, dict[str, str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    copies: int = 0
    in_part: dict[str, int] = field(default_factory=dict)

    def questions_of(self, *methods: str) -> list[str]:
        """Return the ids of the questions that all of the methods answered, in the order of the questions."""
        return [own_id for own_id in self.texts if all(own_id in self.answers[method] for method in methods)]


def answer_sources(given: Sequence[str]) -> list[tuple[str | None, str]]:
    """Parse --answers: [NAME=]FILE → the method's name, None where the file gives it, and the file.

    >>> answer_sources(["ours=a.jsonl", "b.jsonl"])
    [('ours', 'a.jsonl'), (None, 'b.jsonl')]
    """
    found: list[tuple[str | None, str]] = []
    for text in given:
        name, equals, path = text.partition("=")
        named = bool(equals and name.strip() and path and "/" not in name)
        found.append((name.strip(), path) if named else (None, text))
    return found


def add_recorded(
    sets: AnswerCollections, sources: Sequence[tuple[str | None, str]], questions: Sequence[Question] = ()
) -> list[Unreadable]:
    """Read answers from files into the sets; return the records that hold none, and why.

    A record's method is the one named for its file, else what its field `method` says, else the file's name.

    Args:
        sources: as of `answer_sources`.
        questions: those of a question file; where there are any, answers to others are left out and returned.

    Raises:
        InputError: a file is not there, holds no answer, or no text of a question is known.
    """
    sets.texts.update({question.id: question.text for question in questions})
    known = {question.id for question in questions}
    unreadable: list[Unreadable] = []
    for name, path in sources:
        file_method = name or PurePath(path).name.split(".")[0]
        refused: list[Unreadable] = []
        n_taken = 0
        for row in rows_of(path):
            if isinstance(row, Unreadable):
                refused.append(row)
            elif reason := _add(sets, row.fields, file_method=file_method, named=name is not None, known=known):
                refused.append(Unreadable(path, row.record, reason))
            else:
                n_taken += 1
        if not n_taken:
            last = f": {refused[-1].reason}" if refused else ""
            raise InputError(f"{path} holds no answer that can be used{last}")
        unreadable += refused
    return unreadable


def _add(sets: AnswerCollections, fields: Mapping[str, Any], *, file_method: str, named: bool, known: set[str]) -> str:
    """Add a record's answer; return why there is none, or an empty text."""
    chosen = {name: find_field(fields, None, usual) for name, usual in _FIELDS.items()}
    said = {name: None if found is None else fields[found] for name, found in chosen.items()}
    if not isinstance(said["answer"], str | int | float):
        there = ", ".join(list(fields)[:10])
        return f"no answer in field {chosen['answer']!r}" if chosen["answer"] else f"no answer; it has: {there}"
    text = clean_text(said["question"]).strip() if isinstance(said["question"], str) else ""
    own_id = next(iter(strings(said["id"])), text)
    if not own_id:
        return "neither an id of its question nor the question"
    if known and own_id not in known:
        return f"the question file has no question {own_id!r}"
    if not text and own_id not in sets.texts:
        return f"the text of question {own_id!r} is not known; give the question file with --questions"
    sets.texts.setdefault(own_id, text)
    method = file_method if named or not isinstance(said["method"], str) else said["method"].strip() or file_method
    answer = clean_text(str(said["answer"])).strip()
    own = sets.answers.setdefault(method, {})
    if own_id not in own:
        own[own_id] = answer
    elif own[own_id] == answer:
        sets.copies += 1
    else:
        return f"{method} answers question {own_id!r} a second time, in other words"
    return ""


async def add_made(
    sets: AnswerCollections, session: Session, questions: Sequence[Question], systems: Sequence[SystemUnderTest]
) -> None:
    """Answer the questions with an index, each once a system, and add what came of it to the sets.

    A question that a system has a dead letter for is not in its answers.

    Raises:
        ConfigError: the evaluation has no index.
        InputError: a system has the name of a method whose answers were recorded.
    """
    taken = [system.name for system in systems if system.name in sets.answers]
    if taken:
        raise InputError(f"{taken[0]} is a mode and the name of recorded answers too; name these, as in other=FILE")
    sets.texts.update({question.id: question.text for question in questions})
    snapshot_id = session.engine().info.snapshot_id
    asks = session.asks("answer", *_PROMPTS)

    def decides(trial: Trial) -> dict[str, Any]:
        asked = {"question": trial.question.text, "system": trial.system.decides, "asks": asks}
        return {"snapshot": snapshot_id, **asked}

    async def answer(trial: Trial) -> dict[str, Any]:
        found = await session.engine(trial.system).answer(Query(trial.question.text, trial.system.mode))
        work = found.retrieval.map_work
        return {
            "answer": found.text,
            "context_tokens": found.retrieval.context_tokens,
            "failed_parts": 0 if work is None else work.failed,
        }

    for system in systems:
        sets.answers[system.name] = {}
    async for outcome in await session.map(STEP, trial_units(questions, systems, decides), answer):
        question, system = outcome.item.question, outcome.item.system
        sets.answers[system.name][question.id] = outcome.value["answer"]
        if outcome.value["failed_parts"]:
            sets.in_part[system.name] = sets.in_part.get(system.name, 0) + 1
