"""`eval judge`: answers compared two by two by language models, in both orders. Works on any answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from hirag_dist.composition.models import shares
from hirag_dist.config.model import Config, RoleTarget
from hirag_dist.core.prompts.evaluation_requests import judge_request
from hirag_dist.core.prompts.evaluation_templates import CRITERIA
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, InputError
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_made, add_recorded
from hirag_dist.evaluation.findings import Findings
from hirag_dist.evaluation.kinds.judge_report import findings_of, judging_results, judging_sections, win_rate_table
from hirag_dist.evaluation.metrics.judge_replies import parse_verdicts
from hirag_dist.evaluation.metrics.win_rates import AnswerPair, VerdictTable, pair_titles, tally
from hirag_dist.evaluation.questions import Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.verdict_records import VerdictColumns, add_record, read_verdicts, write_verdict
from hirag_dist.evaluation.work_units import WorkUnit
from hirag_dist.html import Section, Table, Text
from hirag_dist.types import IntVector, Rejected

STEP: Final = "verdicts"
ROLE: Final = "judge"
SILENT: Final = "(This answer is empty.)"


@dataclass(frozen=True)
class JudgingOptions:
    """Parameters of judging.

    Attributes:
        criteria: names in `evaluation_prompts.CRITERIA`.
        judges: roles, each asked for every comparison: `judge`, or `judge:ENDPOINT` for each endpoint named.
        replicates: how many times each judge is asked the same.
        against: compare all methods with this one only; None compares each with each.
    """

    criteria: tuple[str, ...] = tuple(CRITERIA)
    judges: tuple[str, ...] = (ROLE,)
    replicates: int = 1
    against: str | None = None


def judge_roles(endpoints: Sequence[str], config: Config) -> dict[str, RoleTarget]:
    """Return role → endpoint for judges that are named one by one; empty where the configured role judges.

    Raises:
        ConfigError: there is no such endpoint.
    """
    for name in endpoints:
        if name not in config.llm.endpoints:
            raise ConfigError(f"--judge {name}: no such endpoint; there are: {', '.join(config.llm.endpoints)}")
    return {f"{ROLE}:{name}": name for name in dict.fromkeys(endpoints)}


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
    judge: str
    replicate: int
    swapped: bool

    @property
    def shown(self) -> tuple[str, str]:
        """The methods, in the order of their answers."""
        return (self.pair.second, self.pair.first) if self.swapped else (self.pair.first, self.pair.second)


async def judge(session: Session, sets: AnswerCollections, judging: JudgingOptions) -> VerdictTable:
    """Have all pairs judged in both orders by every judge and replicate; a failed call is a dead letter.

    Raises:
        InputError: there is nothing to compare.
    """
    pairs = pairs_of(sets, judging.against)
    forms = {role: "judge" if await session.structured(role) else None for role in judging.judges}

    async def ask(item: Comparison) -> dict[str, Any] | Rejected:
        answers = [sets.answers[method][item.question] or SILENT for method in item.shown]
        request = judge_request(
            sets.texts[item.question],
            (answers[0], answers[1]),
            judging.criteria,
            session.prompts,
            role=item.judge,
            form=forms[item.judge],
            replicate=item.replicate,
        )
        found = await session.pool.ask(request, lambda reply: parse_verdicts(reply, judging.criteria))
        if isinstance(found, Rejected):
            return found
        said = {name: (verdict.winner, verdict.reason) for name, verdict in found.items()}
        return write_verdict(item.shown, item.question, item.judge, item.replicate, item.swapped, said)

    columns = VerdictColumns()
    async for outcome in await session.map(STEP, _units(session, sets, pairs, judging), ask):
        add_record(columns, outcome.item.pair, outcome.value, judging.criteria)
    return columns.verdicts(pairs, judging.criteria)


def _units(
    session: Session, sets: AnswerCollections, pairs: Sequence[AnswerPair], judging: JudgingOptions
) -> Iterator[WorkUnit[Comparison]]:
    """Yield the comparisons, question by question: one that is stopped early has whole questions."""
    asks = {role: session.asks(role, "judge") for role in judging.judges}
    criteria = {name: CRITERIA[name] for name in judging.criteria}
    for question in sets.texts:
        for pair in pairs:
            if not all(question in sets.answers[method] for method in pair[:2]):
                continue
            for judge_role in judging.judges:
                for replicate in range(judging.replicates):
                    for swapped in (False, True):
                        item = Comparison(pair, question, judge_role, replicate, swapped)
                        decides = {
                            "id": question,
                            "question": sets.texts[question],
                            "answers": [[method, sets.answers[method][question]] for method in item.shown],
                            "criteria": criteria,
                            "judge": judge_role,
                            "asks": asks[judge_role],
                            "replicate": replicate,
                            "swapped": swapped,
                        }
                        yield WorkUnit(_name(item, judging), decides, item)


def _name(item: Comparison, judging: JudgingOptions) -> str:
    name = f"{item.question}: {item.shown[0]} before {item.shown[1]}"
    if len(judging.judges) > 1:
        name += f", {item.judge}"
    return name if judging.replicates == 1 else f"{name}, replicate {item.replicate + 1}"


def answer_lengths(
    sets: AnswerCollections, verdicts: VerdictTable, count_tokens: Callable[[str], int]
) -> dict[int, IntVector]:
    """Return the lengths of each pair's answers, for pairs of which there are answers.

    Returns:
        place of the pair → (n_questions, 2) tokens, -1 where there is no answer.
    """
    counted: dict[tuple[str, str], int] = {}

    def length(method: str, question: str) -> int:
        answer = sets.answers.get(method, {}).get(question)
        if answer is None:
            return -1
        if (method, question) not in counted:
            counted[method, question] = count_tokens(answer)
        return counted[method, question]

    found: dict[int, IntVector] = {}
    for place, pair in enumerate(verdicts.pairs):
        if pair.first in sets.answers and pair.second in sets.answers:
            rows = [[length(method, question) for method in pair[:2]] for question in verdicts.questions]
            found[place] = np.array(rows, np.int64).reshape(-1, 2)
    return found


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
    verdicts = await judge(session, sets, judging)
    return _findings(session, verdicts, sets, material)


async def recount(session: Session, *, paths: Sequence[str], material: AnswerMaterial) -> Findings:
    """Count recorded verdicts, and return what is found; answers, where there are any, give the lengths.

    Raises:
        InputError: the files hold no verdict.
    """
    recorded = read_verdicts(paths)
    session.refuse_records("verdicts", recorded.unreadable)
    sets = await material.gather(session)
    found = _findings(session, recorded.verdicts, sets, material)
    if recorded.by_row is None:
        return found
    rows = row_rule(recorded.verdicts, recorded.by_row)
    table = _row_table(rows)
    return Findings(
        {**found.results, "by_row": rows}, [*found.sections, table], [*found.headline, table], found.questions
    )


def _findings(session: Session, verdicts: VerdictTable, sets: AnswerCollections, material: AnswerMaterial) -> Findings:
    found = findings_of(verdicts)
    results = judging_results(verdicts, answer_lengths(sets, verdicts, session.count_tokens), found)
    results["answers"] = sets.counts
    results["answer_copies"] = sets.copies
    results["answers_in_part"] = sets.in_part
    sections: list[Section] = judging_sections(verdicts, results, found)
    if sets.in_part:
        said = [
            f"{method}: {count_noun(count, 'answer lacks', 'answers lack')} parts whose call failed."
            for method, count in sets.in_part.items()
        ]
        sections.append(Text("Answers in part", said))
    return Findings(results, sections, [win_rate_table(found)], material.counts)


def row_rule(aligned: VerdictTable, by_row: VerdictTable) -> list[dict[str, Any]]:
    """Return the counts of recorded verdicts by both rules of which answer was whose, pair by pair.

    `aligned` goes by what each record says, `published` by the row in which it was published (`read_verdicts`).
    """
    rows = []
    for place, pair in enumerate(aligned.pairs):
        for number, criterion in enumerate(aligned.criteria):
            counts = {}
            for rule, verdicts in (("published", by_row), ("aligned", aligned)):
                counted = tally(verdicts.where(pair=place, criterion=number))
                counts[rule] = {
                    "wins": counted.wins,
                    "ties": counted.ties,
                    "losses": counted.losses,
                    "win_rate": counted.rate,
                }
            rows.append(
                {"name": pair.name, "first": pair.first, "second": pair.second, "criterion": criterion} | counts
            )
    return rows


def _row_table(rows: Sequence[dict[str, Any]]) -> Table:
    pairs = [AnswerPair(row["first"], row["second"], row["name"]) for row in rows]
    titles = pair_titles(list(dict.fromkeys(pairs)))
    shown = [
        [
            titles[pair],
            row["criterion"],
            *(row[rule][key] for rule in ("published", "aligned") for key in ("wins", "win_rate")),
        ]
        for pair, row in zip(pairs, rows, strict=True)
    ]
    columns = ["pair", "criterion", "wins by row", "win rate by row", "wins by record", "win rate by record"]
    note = (
        "By row: rows below the number of questions are taken to show the first method first, as the published "
        "evaluation did. By record: each record says which answer was whose, also after a row that was dropped."
    )
    return Table("Both ways of counting", columns, shown, note, ".1%")
