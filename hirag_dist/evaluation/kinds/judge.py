"""`eval judge`: answers compared two by two by language models, in both orders. Works on any answers."""

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
from hirag_dist.evaluation.metrics.judge_replies import parse_verdicts
from hirag_dist.evaluation.metrics.win_rates import AnswerPair, VerdictRow, VerdictTable, verdict_table
from hirag_dist.evaluation.questions import Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.verdict_records import read_verdicts, rows_of_record, write_verdict
from hirag_dist.evaluation.work_units import Findings, WorkUnit
from hirag_dist.html import Section, Text
from hirag_dist.types import Rejected

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
