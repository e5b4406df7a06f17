"""`eval qa`: short answers to questions with gold ones, by mode, scored by EM and F1; or answers recorded elsewhere.

An answer is asked for with a prompt of its own (`short-answer`), since EM and F1 measure a phrase, not the cited
sentences that people read. What the answer depends on is in its unit; gold answers and definitions are not: another
gold answer or definition scores the same replies again without a call.

A question that can be answered is scored by EM and F1, one that cannot by whether the answer refuses; a question
without a gold answer is counted and not scored. The two are never averaged together: a system that refuses everything
is perfect on the one kind and nothing on the other.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Literal

from hirag_dist.core.prompts.answer_requests import short_answer_request
from hirag_dist.core.prompts.reply_parsing import parse_text
from hirag_dist.core.retrieval.context import RECORD_LETTERS, UNKNOWN_ANSWER
from hirag_dist.core.text.normalize import count_noun, one_line
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_recorded
from hirag_dist.evaluation.board import NOTE, Board, comparison, difference_table
from hirag_dist.evaluation.metrics.exact_match_f1 import DEFINITIONS, REFUSALS, is_refusal, score_answer
from hirag_dist.evaluation.questions import Question, Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, SystemUnderTest, Trial, Value, WorkUnit, trials
from hirag_dist.html import Cell, Section, Table, Text
from hirag_dist.llm.usage import UsageMeter, total_cost
from hirag_dist.retrieval.map_reduce import MAP_REDUCE, map_parts
from hirag_dist.retrieval.search import MODES
from hirag_dist.storage.store import Store
from hirag_dist.types import Query, Rejected, Retrieval

_REFERENCE = re.compile(rf" ?\[([{RECORD_LETTERS}]\d+)\]")
_FILE = "scores.jsonl"
SCORES = ("exact", "f1", "precision", "recall")
_REFUSED, _WRONGLY_REFUSED = "refused", "refused though answerable"
_COSTS = {
    "calls": "calls",
    "input_tokens": "tokens in",
    "output_tokens": "tokens out",
    "usd": "US dollars",
    "context_tokens": "context tokens",
    "retrieval_ms": "retrieval ms",
    "seconds": "seconds",
}
Sort = Literal["answerable", "unanswerable", "without gold"]


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """Rules of scoring answers.

    Attributes:
        definition: Name in `DEFINITIONS`.
        refusals: Answers that say that there is none.
    """

    definition: str = "hotpotqa"
    refusals: tuple[str, ...] = REFUSALS

    def sort_of(self, question: Question) -> Sort:
        """Return how answers to a question are scored."""
        if question.answerable is False:
            return "unanswerable"
        if not question.answers:
            return "without gold"
        return "unanswerable" if all(is_refusal(each, self.refusals) for each in question.answers) else "answerable"


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
    context = {
        "snapshot": session.require_snapshot().manifest.snapshot_id,
        "tokenizer": session.config.tokenizer,
    }

    def units() -> Iterator[WorkUnit[Trial]]:
        for trial in trials(questions.items, systems):
            asks = by_parts if trial.system.mode in MAP_REDUCE else short
            decides = {"question": trial.question.text, **context, **trial.system.decides, **asks}
            yield WorkUnit(trial.name, decides, trial)

    async def work(asked: Trial) -> Value | Rejected:
        return await _answer(session, asked)

    outcomes = await session.map("answers", units(), work)
    scored = ScoredAnswers(questions.items, [system.name for system in systems], rules)
    with Store(session.order.out).create(_FILE) as file:
        async for outcome in outcomes:
            asked, value = outcome.item, outcome.value
            cost = _cost(value, outcome.usage, outcome.seconds)
            _write(file, scored.add(asked.place, asked.system.name, value["answer"], cost))
    return scored.findings(questions.counts)


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
    scored = ScoredAnswers(questions.items, sets.methods, rules)
    with Store(session.order.out).create(_FILE) as file:
        for system, by_question in sets.answers.items():
            for place, question in enumerate(questions.items):
                line = scored.add(place, system, by_question.get(question.id))
                if question.id in by_question:
                    _write(file, line)
    return scored.findings(questions.counts)


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


def _cost(value: Value, usage: UsageMeter, seconds: float) -> dict[str, float | None]:
    uses = usage.uses.values()
    return {
        **{name: sum(getattr(use, name) for use in uses) for name in ("calls", "input_tokens", "output_tokens")},
        "usd": total_cost(use.cost_usd for use in uses),
        "context_tokens": value["context_tokens"],
        "retrieval_ms": value["retrieval_ms"],
        "seconds": seconds,
    }


def _write(file: BinaryIO, line: Mapping[str, Any]) -> None:
    file.write((json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "replace"))


class ScoredAnswers:
    """Scores by question and system; none of the texts is kept."""

    def __init__(self, questions: Sequence[Question], systems: Sequence[str], rules: ScoringRules) -> None:
        self.questions, self.rules = questions, rules
        self.sorts = [rules.sort_of(question) for question in questions]
        measures = [*SCORES, _REFUSED, _WRONGLY_REFUSED, *_COSTS]
        self.board = Board([question.type for question in questions], systems, measures)
        self.missing: Counter[str] = Counter()

    def add(
        self, place: int, system: str, answer: str | None, cost: Mapping[str, float | None] | None = None
    ) -> dict[str, Any]:
        """Score the answer to the question at a place, None where it is missing; return it as a line of JSON.

        A missing answer to a question that can be answered scores zero, as in the official scripts.
        """
        question, sort = self.questions[place], self.sorts[place]
        refused = answer is not None and is_refusal(answer, self.rules.refusals)
        values: dict[str, float | None] = {_REFUSED if sort == "unanswerable" else _WRONGLY_REFUSED: float(refused)}
        if sort == "without gold":
            values = {}
        elif sort == "answerable" and answer is not None:
            values |= asdict(score_answer(answer, question.answers, DEFINITIONS[self.rules.definition]))
        elif sort == "answerable":
            values |= dict.fromkeys(SCORES, 0.0)
        self.missing[system] += answer is None
        self.board.add(place, system, values | dict(cost or {}))
        return {
            "question_id": question.id,
            "system": system,
            "question": question.text,
            "answer": answer,
            "gold_answers": list(question.answers),
            "type": question.type,
            "sort": sort,
            "refused": refused,
            "scores": {name: values[name] for name in SCORES if name in values},
            "cost": cost,
        }

    def findings(self, counts: Mapping[str, int]) -> Findings:
        """Return the report.

        Args:
            counts: Counts of the questions, as `Questions.counts`.
        """
        board = self.board
        sorts = {sort: self.sorts.count(sort) for sort in ("answerable", "unanswerable", "without gold")}
        results = board.results(SCORES) | {
            "definition": self.rules.definition,
            "questions": sorts,
            "answers": {
                system: {
                    "scored": len(board.known(system, "f1")),
                    "missing": self.missing[system],
                    "unanswerable": len(board.known(system, _REFUSED)),
                }
                for system in board.systems
            },
            "refusals": board.results([_REFUSED, _WRONGLY_REFUSED], ())["systems"],
            "costs": board.averages(list(_COSTS)),
        }
        scores = self._table(results)
        refusals = self._refusals(results) if sorts["unanswerable"] else []
        sections: list[Section] = [
            *comparison(f"Exact match and F1 ({self.rules.definition})", results, drawn=("exact", "f1")),
            scores,
            *refusals,
            *self._costs(results),
            Text(
                "How answers are scored",
                [_EXPLAINED[self.rules.definition], _ALL.format(", ".join(self.rules.refusals))],
            ),
        ]
        headline = [scores, *refusals, *difference_table(results, measures=("exact", "f1"))]
        return Findings(results, sections, headline, dict(counts))

    def _table(self, results: Mapping[str, Any]) -> Table:
        rows: list[list[Cell]] = [
            [system, counts["scored"], *(results["systems"][system][name] for name in SCORES), counts["missing"]]
            for system, counts in results["answers"].items()
        ]
        title = f"Answers by the definition of {self.rules.definition}"
        return Table(title, ["system", "questions", "EM", "F1", "precision", "recall", "no answer"], rows)

    def _refusals(self, results: Mapping[str, Any]) -> list[Table]:
        rows: list[list[Cell]] = [
            [system, results["answers"][system]["unanswerable"], found[_REFUSED], found[_WRONGLY_REFUSED]]
            for system, found in results["refusals"].items()
        ]
        columns = ["system", "questions without an answer", _REFUSED, _WRONGLY_REFUSED]
        return [Table("Refusals", columns, rows, "Questions without an answer are in no other figure.")]

    def _costs(self, results: Mapping[str, Any]) -> list[Table]:
        rows: list[list[Cell]] = [
            [system, *(costs[name] for name in _COSTS)]
            for system, costs in results["costs"].items()
            if costs["calls"] is not None
        ]
        note = "Of replies that an earlier run paid too. Times are those of several questions at a time."
        columns = ["system", *_COSTS.values()]
        return [Table("An answer costs, on average", columns, rows, note, ",.4g")] if rows else []


_OFFICIAL = (
    "lower case, without the punctuation of ASCII and the words a, an and the; F1 counts the words that both have as "
    "often as both have them"
)
_EXPLAINED = {
    "hotpotqa": f"hotpotqa: {_OFFICIAL}; yes, no and noanswer are right or wrong as a whole.",
    "musique": f"musique: {_OFFICIAL}; yes and no are words like others.",
    "hirag": (
        "hirag: exact match in lower case without punctuation, articles kept; F1 over cl100k_base tokens of the texts "
        "as they are written, as in the evaluation of the HiRAG reference."
    ),
    "unicode": (
        "unicode: without case, punctuation and symbols of any script, articles kept; letters of scripts without "
        "spaces count one by one. A definition of this program, not to be compared with published figures."
    ),
}
_ALL = (
    "With several gold answers each figure is the best over them. A refusal is an answer whose whole text or first "
    f"sentence is one of: {{}}. {NOTE}"
)
