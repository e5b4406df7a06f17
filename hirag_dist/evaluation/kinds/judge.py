"""`eval judge`: answers compared by a model, in both orders, and the verdicts that it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any, Final

from hirag_dist.composition.models import shares
from hirag_dist.config.model import Config, RoleTarget
from hirag_dist.core.prompts.evaluation_requests import judge_request
from hirag_dist.core.prompts.evaluation_templates import CRITERIA
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, InputError
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_made, add_recorded
from hirag_dist.evaluation.kinds.judge_report import findings_of, judging_results, judging_sections, win_rate_table
from hirag_dist.evaluation.metrics.judge_replies import FIRST, SECOND, TIE, parse_verdicts, winner_of
from hirag_dist.evaluation.metrics.win_rates import AnswerPair, VerdictRow, VerdictTable, verdict_table
from hirag_dist.evaluation.questions import Questions, question_id, take_records
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, WorkUnit
from hirag_dist.html import Section, Text
from hirag_dist.readers import Unreadable
from hirag_dist.types import Rejected

SHOWN: Final = {FIRST: "Answer 1", SECOND: "Answer 2", TIE: "Tie"}
_SCORES = {FIRST: 1.0, SECOND: 0.0, TIE: 0.5}
_Firsts = dict[tuple[str, frozenset[str]], str]  # comparison and methods → the method that counts as first


def read_verdicts(paths: Sequence[str]) -> tuple[VerdictTable, list[Unreadable]]:
    """Read recorded verdicts: JSON Lines, JSON or Parquet with one record for each question, pair and order.

    A record has `query_id` (or `question_id`), `answer_1_method` and `answer_2_method`, and for each criterion
    {winner, explanation}; it may have `swapped`, `judge`, `replicate` and `comparison`. Lines of
    `outcomes/verdicts.jsonl` are such records.

    Returns:
        The verdicts, and the records that cannot be used.

    Raises:
        InputError: a file is not there, or holds no verdict.
    """
    rows: list[VerdictRow] = []
    firsts: _Firsts = {}

    def take(fields: Mapping[str, Any]) -> str:
        found = _read_record(fields, firsts)
        if isinstance(found, str):
            return found
        rows.extend(found)
        return ""

    unreadable = take_records(paths, "verdict", take)
    judged = {row.criterion for row in rows}
    return verdict_table(rows, criteria=[name for name in CRITERIA if name in judged]), unreadable


def _read_record(fields: Mapping[str, Any], firsts: _Firsts) -> list[VerdictRow] | str:
    """Return a record's verdicts, or why it cannot be used.

    Args:
        firsts: The first record of two methods decides which of them counts as first.
    """
    if isinstance(fields.get("value"), dict):  # a line of outcomes/verdicts.jsonl
        fields = fields["value"]
    if "dead_letter" in fields:
        return f"a dead letter: {fields['dead_letter']}"
    question = question_id(fields)
    shown = [fields.get(f"answer_{number}_method") for number in (1, 2)]
    if not question or not all(isinstance(name, str) and name for name in shown):
        return "no query_id, answer_1_method and answer_2_method"
    one, other = str(shown[0]), str(shown[1])
    if one == other:
        return f"both answers are of {one}"
    name = fields.get("comparison")
    comparison = name if isinstance(name, str) else ""
    swapped = fields.get("swapped")
    first = firsts.setdefault((comparison, frozenset((one, other))), other if swapped is True else one)
    if isinstance(swapped, bool) and swapped != (first == other):
        return f"swapped is {swapped}, and records before it have {first} as the first method"
    winners: dict[str, int] = {}
    for criterion, said in fields.items():
        if not isinstance(said, dict) or not any(part.lower() == "winner" for part in said):
            continue
        winner = winner_of(next(value for part, value in said.items() if part.lower() == "winner"), (one, other))
        if winner is None:
            return f"the winner of {criterion} is neither answer nor a tie"
        winners[criterion.strip().lower()] = winner
    if not winners:
        return "no criterion with a winner"
    pair = AnswerPair(first, other if first == one else one, comparison)
    asking = (fields.get("judge"), fields.get("replicate"))
    return list(_rows(pair, question, asking, first == other, winners))


def _rows(
    pair: AnswerPair, question: str, asking: tuple[Any, Any], swapped: bool, winners: Mapping[str, int]
) -> Iterator[VerdictRow]:
    for criterion, winner in winners.items():
        score = 1.0 - _SCORES[winner] if swapped else _SCORES[winner]
        yield VerdictRow(pair, criterion, question, asking, swapped, score)


def write_verdict(
    shown: tuple[str, str],
    question: str,
    judge: str,
    replicate: int,
    swapped: bool,
    said: Mapping[str, tuple[int, str]],
) -> dict[str, Any]:
    """Return a record of verdicts, as `read_verdicts` reads it.

    Args:
        shown: the methods, in the order of their answers.
        said: criterion → winner as shown, and reason.
    """
    return {
        "query_id": question,
        "answer_1_method": shown[0],
        "answer_2_method": shown[1],
        "swapped": swapped,
        "judge": judge,
        "replicate": replicate,
        **{name: {"winner": SHOWN[winner], "explanation": reason} for name, (winner, reason) in said.items()},
    }


def rows_of_record(pair: AnswerPair, record: Mapping[str, Any], criteria: Sequence[str]) -> Iterator[VerdictRow]:
    """Yield the verdicts of a record of `write_verdict`."""
    places = {text: winner for winner, text in SHOWN.items()}
    winners = {criterion: places[record[criterion]["winner"]] for criterion in criteria}
    return _rows(pair, record["query_id"], (record["judge"], record["replicate"]), record["swapped"], winners)


STEP: Final = "verdicts"
ROLE: Final = "judge"
SILENT: Final = "(This answer is empty.)"


@dataclass(frozen=True)
class JudgingOptions:
    """Parameters of judging.

    Attributes:
        criteria: names in `evaluation_prompts.CRITERIA`.
        judge: the role that judges: `judge`, or `judge:ENDPOINT` for an endpoint that is named.
        replicates: times that the judge is asked the same.
        against: compare all methods with this one only; None compares each with each.
    """

    criteria: tuple[str, ...] = tuple(CRITERIA)
    judge: str = ROLE
    replicates: int = 1
    against: str | None = None


def judge_roles(endpoint: str | None, config: Config) -> dict[str, RoleTarget]:
    """Return role → endpoint for a judge that is named; empty where the configured role judges.

    Raises:
        ConfigError: there is no such endpoint.
    """
    if endpoint is None:
        return {}
    if endpoint not in config.llm.endpoints:
        raise ConfigError(f"--judge {endpoint}: no such endpoint; there are: {', '.join(config.llm.endpoints)}")
    return {f"{ROLE}:{endpoint}": endpoint}


def require_llm(kind: str, targets: Mapping[str, RoleTarget], config: Config) -> None:
    """Refuse what the built-in model cannot do before anything is asked or paid.

    Args:
        targets: role → who plays it.

    Raises:
        ConfigError: a role is played by the built-in model.
    """
    for role, target in targets.items():
        for name, _ in shares(target):
            if config.llm.endpoints[name].kind == "extractive":
                raise ConfigError(
                    f"eval {kind} needs a language model, and role {role} is played by the built-in one ({name!r}), "
                    "which judges nothing; configure an endpoint (kind: openai) and set llm.roles.judge to its name"
                )


def criteria_of(text: str) -> tuple[str, ...]:
    """Return the criteria named by commas.

    Raises:
        ConfigError: none, or one that there is not.
    """
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in CRITERIA]
    if unknown or not names:
        said = f"there is no criterion {unknown[0]!r}" if unknown else "no criterion is named"
        raise ConfigError(f"--criteria: {said}; there are: {', '.join(CRITERIA)}")
    return names


def pairs_of(sets: AnswerCollections, against: str | None) -> list[AnswerPair]:
    """Return the pairs of methods to compare.

    Raises:
        InputError: fewer than two methods, an unknown baseline, or no two methods that answered a question both.
    """
    methods = sets.methods
    if against is not None and against not in methods:
        raise InputError(f"--against {against}: there are no such answers; there are: {', '.join(methods)}")
    if len(methods) < 2:
        raise InputError(
            f"there are answers of {methods[0] if methods else 'no method'} only; give those of two methods at least: "
            "--answers twice, or --index with two --modes"
        )
    if against is None:
        pairs = [AnswerPair(one, other) for one, other in combinations(methods, 2)]
    else:
        pairs = [AnswerPair(method, against) for method in methods if method != against]
    if not any(sets.questions_of(*pair[:2]) for pair in pairs):
        raise InputError("no two methods answered the same question: the ids of their questions have nothing in common")
    return pairs


@dataclass(frozen=True, slots=True)
class Comparison:
    """One call to one judge."""

    pair: AnswerPair
    question: str
    replicate: int
    swapped: bool

    @property
    def shown(self) -> tuple[str, str]:
        """The methods, in the order of their answers."""
        return (self.pair.second, self.pair.first) if self.swapped else (self.pair.first, self.pair.second)


async def judge(session: Session, sets: AnswerCollections, judging: JudgingOptions) -> VerdictTable:
    """Have all pairs judged in both orders, in every replicate; a failed call is a dead letter.

    Raises:
        InputError: there is nothing to compare.
    """
    pairs = pairs_of(sets, judging.against)
    form = "judge" if await session.structured(judging.judge) else None

    async def ask(item: Comparison) -> dict[str, Any] | Rejected:
        answers = [sets.answers[method][item.question] or SILENT for method in item.shown]
        request = judge_request(
            sets.texts[item.question],
            (answers[0], answers[1]),
            judging.criteria,
            session.prompts,
            role=judging.judge,
            form=form,
            replicate=item.replicate,
        )
        found = await session.pool.ask(request, lambda reply: parse_verdicts(reply, judging.criteria))
        if isinstance(found, Rejected):
            return found
        said = {name: (verdict.winner, verdict.reason) for name, verdict in found.items()}
        return write_verdict(item.shown, item.question, judging.judge, item.replicate, item.swapped, said)

    rows: list[VerdictRow] = []
    async for outcome in await session.map(STEP, _units(session, sets, pairs, judging), ask):
        rows += rows_of_record(outcome.item.pair, outcome.value, judging.criteria)
    return verdict_table(rows, pairs, judging.criteria)


def _units(
    session: Session, sets: AnswerCollections, pairs: Sequence[AnswerPair], judging: JudgingOptions
) -> Iterator[WorkUnit[Comparison]]:
    """Yield the comparisons, question by question: one that is stopped early has whole questions."""
    asks = session.asks(judging.judge, "judge")
    criteria = {name: CRITERIA[name] for name in judging.criteria}
    for question in sets.texts:
        for pair in pairs:
            if not all(question in sets.answers[method] for method in pair[:2]):
                continue
            for replicate, swapped in product(range(judging.replicates), (False, True)):
                item = Comparison(pair, question, replicate, swapped)
                decides = {
                    "id": question,
                    "question": sets.texts[question],
                    "answers": [[method, sets.answers[method][question]] for method in item.shown],
                    "criteria": criteria,
                    "judge": judging.judge,
                    "asks": asks,
                    "replicate": replicate,
                    "swapped": swapped,
                }
                yield WorkUnit(_name(item, judging), decides, item)


def _name(item: Comparison, judging: JudgingOptions) -> str:
    name = f"{item.question}: {item.shown[0]} before {item.shown[1]}"
    return name if judging.replicates == 1 else f"{name}, replicate {item.replicate + 1}"


@dataclass(frozen=True)
class AnswerMaterial:
    """Sources of answers.

    Attributes:
        sources: files of recorded answers, as `answer_sources` gives them.
        questions: of a question file; empty where the answers bring their questions.
        modes: of the index, in which it answers.
    """

    sources: tuple[tuple[str | None, str], ...]
    questions: Questions
    modes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the question file, without those of gold answers and evidence."""
        counts = self.questions.counts if self.questions.items else {}
        return {name: n for name, n in counts.items() if not name.startswith("without_")}

    async def gather(self, session: Session) -> AnswerCollections:
        """Return the answers; what cannot be read is a dead letter of the session.

        Raises:
            InputError: a file without an answer that can be used, or a name used twice.
        """
        sets = AnswerCollections()
        session.refuse_records("questions", self.questions.unreadable)
        session.refuse_records("answers", add_recorded(sets, self.sources, self.questions.items))
        if self.modes:
            await add_made(sets, session, self.questions.items, session.systems(self.modes))
        return sets


async def judge_answers(session: Session, *, material: AnswerMaterial, judging: JudgingOptions) -> Findings:
    """Have answers judged, and return what is found.

    Raises:
        InputError: there is nothing to compare.
    """
    sets = await material.gather(session)
    found = _findings(await judge(session, sets, judging), material.counts)
    answers = {"answers": sets.counts, "answer_copies": sets.copies, "answers_in_part": sets.in_part}
    in_part = [
        f"{method}: {count_noun(count, 'answer lacks', 'answers lack')} parts whose call failed."
        for method, count in sets.in_part.items()
    ]
    sections = [*found.sections, *([Text("Answers in part", in_part)] if in_part else [])]
    return replace(found, results={**found.results, **answers}, sections=sections)


async def recount(session: Session, *, paths: Sequence[str]) -> Findings:
    """Count recorded verdicts, and return what is found.

    Raises:
        InputError: the files hold no verdict.
    """
    verdicts, unreadable = read_verdicts(paths)
    session.refuse_records("verdicts", unreadable)
    return _findings(verdicts, {})


def _findings(verdicts: VerdictTable, counts: Mapping[str, int]) -> Findings:
    found = findings_of(verdicts)
    sections: list[Section] = judging_sections(verdicts, found)
    return Findings(judging_results(verdicts, found), sections, [win_rate_table(found)], counts)
