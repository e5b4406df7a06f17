"""`eval qa`: short answers to questions with gold ones, by mode, scored by EM and F1; or answers recorded elsewhere.

An answer is asked for with a prompt of its own (`short-answer`), since EM and F1 measure a phrase, not the cited
sentences that people read. What the answer depends on is in its unit; gold answers and definitions are not: another
gold answer or definition scores the same replies again without a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from hirag_dist.core.prompts.answer_requests import short_answer_request
from hirag_dist.core.prompts.reply_parsing import parse_text
from hirag_dist.core.retrieval.context import RECORD_LETTERS, UNKNOWN_ANSWER
from hirag_dist.core.text.normalize import count_noun, one_line
from hirag_dist.errors import StoreError
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_recorded
from hirag_dist.evaluation.kinds.qa_scores import AnswerCost, Scoreboard, ScoringRules
from hirag_dist.evaluation.questions import Question, Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, SystemUnderTest, Trial, Value, WorkUnit, trials
from hirag_dist.llm.usage import UsageMeter, total_cost
from hirag_dist.retrieval.map_reduce import MAP_REDUCE, map_parts
from hirag_dist.retrieval.search import MODES
from hirag_dist.types import Query, Rejected, Retrieval

SCORES = "scores.jsonl"
_REFERENCE = re.compile(rf" ?\[([{RECORD_LETTERS}]\d+)\]")


async def evaluate_answers(
    session: Session, questions: Questions, modes: Sequence[str], rules: ScoringRules
) -> Findings:
    """Ask every question in every mode and variant, score the answers, and leave them in OUT/scores.jsonl.

    Raises:
        ConfigError: no index, or an unknown mode.
    """
    systems = session.systems(modes, (*MODES, *MAP_REDUCE))
    session.refuse_records("questions", questions.unreadable)
    short = session.asks("answer", "short-answer")
    by_parts = session.asks("answer", "short-answer", "map-answer")
    snapshot = session.snapshot.manifest.snapshot_id if session.snapshot else ""
    context = {"snapshot": snapshot, "tokenizer": session.config.tokenizer}

    def units() -> Iterator[WorkUnit[Trial]]:
        for trial in trials(questions.items, systems):
            asks = by_parts if trial.system.mode in MAP_REDUCE else short
            decides = {"question": trial.question.text, **context, **trial.system.decides, **asks}
            yield WorkUnit(trial.name, decides, trial)

    async def work(asked: Trial) -> Value | Rejected:
        return await _answer(session, asked)

    outcomes = await session.map("answers", units(), work)
    board = Scoreboard(questions.items, [system.name for system in systems], rules)
    with _written(session.out / SCORES) as file:
        async for outcome in outcomes:
            asked, value = outcome.item, outcome.value
            cost = _cost(value, outcome.usage, outcome.seconds)
            said = board.add(asked.place, asked.system.name, asked.question, value["answer"], cost)
            _write(file, asked.question, asked.system.name, value["answer"], said)
    return board.findings(questions.counts)


async def score_recorded(session: Session, questions: Questions, path: str, rules: ScoringRules) -> Findings:
    """Score answers of a file; nothing is asked.

    A question that a system has no answer to counts as wrong, as in the official scripts, and is counted. An answer
    to a question that is not in the question file, and a second one to the same question in other words, is a dead
    letter.

    Args:
        path: of records with an answer, the id of its question, and the system that gave it where there are several.

    Raises:
        InputError: the file holds no answer to any of the questions.
    """
    session.refuse_records("questions", questions.unreadable)
    sets = AnswerCollections()
    session.refuse_records("answers", add_recorded(sets, [(None, path)], questions.items))
    board = Scoreboard(questions.items, sets.methods, rules)
    with _written(session.out / SCORES) as file:
        for system, by_question in sets.answers.items():
            for place, question in enumerate(questions.items):
                answer = by_question.get(question.id)
                if answer is None:
                    board.add_missing(place, system)
                else:
                    _write(file, question, system, answer, board.add(place, system, question, answer))
    return board.findings(questions.counts)


async def _answer(session: Session, asked: Trial) -> Value | Rejected:
    question = asked.question
    found = await _context(session, question, asked.system)
    if found.map_work is not None and found.map_work.failed:
        work = found.map_work
        return Rejected(question.id, f"no usable reply for {work.failed:,} of {count_noun(work.parts, 'part')}", 1)
    value: Value = {
        "answer": UNKNOWN_ANSWER,
        "reply": None,  # no model is asked where nothing was found
        "context_tokens": found.context_tokens,
        "retrieval_ms": found.timings_ms["total"],
    }
    if not found.context_refs:
        return value
    request = short_answer_request(question.text, found.context, session.prompts)
    reply = await session.pool.ask(request, parse_text)
    if isinstance(reply, Rejected):
        return reply
    return value | {"answer": bare_answer(reply, found.context_refs), "reply": reply}


async def _context(session: Session, question: Question, system: SystemUnderTest) -> Retrieval:
    """Return the material of an answer; in a map-reduce mode its parts are asked about through the pool."""
    engine, query = session.engine(system), Query(question.text, mode=system.mode)
    if system.mode not in MAP_REDUCE:
        return await engine.retrieve(query, for_model=True)
    return await map_parts(await engine.material(query), session.pool, session.prompts, session.count_tokens)


def bare_answer(reply: str, refs: Iterable[str]) -> str:
    r"""Return a reply on one line without the references that a model puts behind it although it should not.

    >>> bare_answer("Dundee [S1]\n", {"S1": "chunk"})
    'Dundee'
    """
    known = frozenset(refs)
    return one_line(_REFERENCE.sub(lambda mark: "" if mark[1] in known else mark[0], reply))


def _cost(value: Value, usage: UsageMeter, seconds: float) -> AnswerCost:
    uses = usage.uses.values()
    return AnswerCost(
        calls=sum(use.calls for use in uses),
        input_tokens=sum(use.input_tokens for use in uses),
        output_tokens=sum(use.output_tokens for use in uses),
        usd=total_cost(use.cost_usd for use in uses),
        context_tokens=value["context_tokens"],
        retrieval_ms=value["retrieval_ms"],
        seconds=seconds,
    )


def _write(file: TextIO, question: Question, system: str, answer: str, said: Mapping[str, Any]) -> None:
    line = {
        "question_id": question.id,
        "system": system,
        "question": question.text,
        "answer": answer,
        "gold_answers": list(question.answers),
        "type": question.type,
        **said,
    }
    file.write(json.dumps(line, ensure_ascii=False) + "\n")


@contextmanager
def _written(path: Path) -> Iterator[TextIO]:
    """Yield a file that takes its place when it is complete.

    Raises:
        StoreError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("w", encoding="utf-8", errors="replace") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
