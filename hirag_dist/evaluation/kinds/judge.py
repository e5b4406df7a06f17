"""`eval judge`: answers compared two by two by a model, in both orders: win rates, and the influence of the position.

A verdict says of one question, of two answers in one order, and of one criterion which of the two is better. It is
kept as the score of the pair's first method: 1 for a win, 0.5 for a tie, 0 for a loss. The GraphRAG paper (appendix G)
scores the same way with 100, 50 and 0, and averages over its runs before it compares questions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Final, NamedTuple

import numpy as np

from hirag_dist.config.model import Config, shares
from hirag_dist.core.prompts.records import json_object
from hirag_dist.core.prompts.reply_validation import MalformedReply, usable_text
from hirag_dist.core.prompts.requests import judge_request
from hirag_dist.core.prompts.templates import CRITERIA
from hirag_dist.core.text.normalize import count_noun, one_line
from hirag_dist.errors import ConfigError, InputError
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_made, add_recorded
from hirag_dist.evaluation.board import Board, p_text, tested
from hirag_dist.evaluation.questions import Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, WorkUnit
from hirag_dist.html import Bars, Cell, Section, Table, Text
from hirag_dist.types import ChatReply, ChatRequest, Rejected

FIRST, SECOND, TIE = 1, 2, 0

_WINNER: Final = re.compile(
    r"(?:the )?(?:(?:answer|response|assistant|option|model) ?)?(1|a|one|first|2|b|two|second)(?: (?:answer|response))?"
    r"|(?:it['’]s |it is )?(?:a )?(?:tie|tied|draw|equal|same|similar|both|neither|none|0|c)(?: answers)?"
)
_FIRST_NAMES: Final = ("1", "a", "one", "first")
_BARE_LIST: Final = re.compile(r"\A\s*(?:```\w*\s*)?(\[\s*\{.*\}\s*,?\s*\])\s*(?:```)?\s*\Z", re.DOTALL)
_LIST_NUMBER = re.compile(r"^\W*\d{1,2}[.)]\s+")  # before a criterion
_EDGES = " \t\r\n\"'`*_.,;:!()[]{}<>#-•“”‘’«»"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The better answer by one criterion: `FIRST` or `SECOND` as they were shown, or `TIE`; and the reason."""

    winner: int
    reason: str = ""


def winner_of(said: object) -> int | None:
    """Return the answer that a value names as the better one, or None where that is ambiguous.

    Args:
        said: "Answer 1", "1", 1, "A", "[[B]]", "first", "tie", 0, …

    >>> winner_of("**Answer 2**"), winner_of("[[A]]"), winner_of("tie"), winner_of("Answer 1 or Answer 2")
    (2, 1, 0, None)
    """
    named = _WINNER.fullmatch(_key(said)) if isinstance(said, str | int) else None
    if named is None:
        return None
    if named[1] is None:
        return TIE
    return FIRST if named[1] in _FIRST_NAMES else SECOND


def parse_verdicts(reply: ChatReply, criteria: Sequence[str]) -> dict[str, Verdict]:
    """Return a judge's verdict on every criterion, in the order of `criteria`.

    Read are the requested form, its list alone, an object with a key for each criterion, and lines "criterion: winner".
    What else is said is left out.

    Raises:
        MalformedReply: the reply can't be used, or a criterion has no plain verdict, or two that contradict each other.
    """
    said: dict[str, list[dict[str, Any]]] = {}
    for entry in _entries(usable_text(reply)):
        said.setdefault(_key(entry.get("criterion")).removesuffix(" winner"), []).append(entry)
    verdicts: dict[str, Verdict] = {}
    for criterion in criteria:
        entries = said.get(_key(criterion), [])
        winners = {winner_of(entry.get("winner")) for entry in entries}
        if not entries:
            raise MalformedReply(f"there is no verdict on {criterion}")
        if len(winners) > 1 and None not in winners:
            raise MalformedReply(f"there are contradicting verdicts on {criterion}")
        winner = winners.pop() if len(winners) == 1 else None
        if winner is None:
            shown = one_line(str(entries[0].get("winner")))[:60]
            raise MalformedReply(f"the winner of {criterion} is not 1, 2 or tie: {shown}")
        reason = entries[0].get("reason") or entries[0].get("explanation")
        verdicts[criterion] = Verdict(winner, reason if isinstance(reason, str) else "")
    return verdicts


def _entries(text: str) -> list[dict[str, Any]]:
    """Return what a reply says of each criterion, with the keys "criterion" and "winner" where they are given."""
    bare = _BARE_LIST.match(text)
    data = json_object(f'{{"verdicts": {bare[1]}}}' if bare else text)
    if data is None:
        lines = [_LIST_NUMBER.sub("", line).partition(":") for line in text.splitlines()]
        return [{"criterion": name, "winner": said} for name, _, said in lines if said.strip()]
    lists = [value for value in data.values() if isinstance(value, list)]
    verdicts = {_key(name): value for name, value in data.items()}.get("verdicts", lists[0] if lists else data)
    if isinstance(verdicts, dict):
        pairs = ((name, said if isinstance(said, dict) else {"winner": said}) for name, said in verdicts.items())
        verdicts = [{"criterion": name} | said for name, said in pairs]
    listed = verdicts if isinstance(verdicts, list) else []
    return [{_key(name): said for name, said in entry.items()} for entry in listed if isinstance(entry, dict)]


def _key(name: object) -> str:
    """Return a name, a number or a winner in the form in which they are compared."""
    return one_line(str(name).replace("_", " ")).strip(_EDGES).casefold()


ROLE: Final = "judge"
TRIAL_QUESTION: Final = "What is two and two?"
TRIAL_ANSWERS: Final = ("Two and two is four.", "Two and two is five.")
SILENT: Final = "(This answer is empty.)"
SHOWN: Final = {FIRST: "Answer 1", SECOND: "Answer 2", TIE: "Tie"}
_SCORES: Final = {"Answer 1": 1.0, "Answer 2": 0.0, "Tie": 0.5}
_MAX_PAIRS = 6  # maximum pairs of systems in a chart of all criteria
Pair = tuple[str, str]  # the methods whose answers are compared


@dataclass(frozen=True)
class JudgingOptions:
    """Parameters of judging.

    Attributes:
        against: Method that all others are compared with; None compares each with each.
    """

    criteria: tuple[str, ...] = tuple(CRITERIA)
    replicates: int = 1
    against: str | None = None


def require_llm(kind: str, config: Config) -> None:
    """Raise ConfigError, before anything is asked or paid, where the built-in model plays the role `judge`."""
    for name, _ in shares(config.llm.roles.judge):
        if config.llm.endpoints[name].kind == "extractive":
            raise ConfigError(
                f"eval {kind} needs a language model, and role {ROLE} is played by the built-in one ({name!r}), "
                "which judges nothing; configure an endpoint (kind: openai) and set llm.roles.judge to its name"
            )


def criteria_of(text: str) -> tuple[str, ...]:
    """Return the criteria named by commas. Raises ConfigError where there is none, or an unknown one."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in CRITERIA]
    if unknown or not names:
        said = f"there is no criterion {unknown[0]!r}" if unknown else "no criterion is named"
        raise ConfigError(f"--criteria: {said}; there are: {', '.join(CRITERIA)}")
    return names


def pairs_of(sets: AnswerCollections, against: str | None) -> list[Pair]:
    """Return the pairs of methods to compare.

    Raises:
        InputError: fewer than two methods, an unknown baseline, or no two methods that answered a question both.
    """
    methods = list(sets.answers)
    if against is not None and against not in methods:
        raise InputError(f"--against {against}: there are no such answers; there are: {', '.join(methods)}")
    if len(methods) < 2:
        raise InputError(
            f"there are answers of {methods[0] if methods else 'no method'} only; give those of two methods at least: "
            "--answers twice, or --index with two --modes"
        )
    pairs = list(combinations(methods, 2))
    if against is not None:
        pairs = [(each, against) for each in methods if each != against]
    if not any(sets.questions_of(*pair) for pair in pairs):
        raise InputError("no two methods answered the same question: the ids of their questions have nothing in common")
    return pairs


@dataclass(frozen=True, slots=True)
class Comparison:
    """One call to one judge."""

    pair: Pair
    question: str
    replicate: int
    swapped: bool

    @property
    def shown(self) -> Pair:
        """The methods, in the order of their answers."""
        return (self.pair[1], self.pair[0]) if self.swapped else self.pair


class VerdictRow(NamedTuple):
    """One verdict: whether the pair's second method was shown first, and the score of its first method."""

    pair: Pair
    criterion: str
    question: str
    replicate: int
    swapped: bool
    score: float


async def judge(
    session: Session, sets: AnswerCollections, pairs: Sequence[Pair], judging: JudgingOptions
) -> list[VerdictRow]:
    """Have the pairs judged in both orders, in every replicate; a failed call is a dead letter."""
    form = "judge" if await session.structured(ROLE) else None
    asks = session.asks(ROLE, "judge")
    criteria = {name: CRITERIA[name] for name in judging.criteria}

    def units() -> Iterator[WorkUnit[Comparison]]:
        """Yield the comparisons, question by question: one that is stopped early has whole questions."""
        for question, pair in product(sets.texts, pairs):
            if not all(question in sets.answers[method] for method in pair):
                continue
            for replicate, swapped in product(range(judging.replicates), (False, True)):
                item = Comparison(pair, question, replicate, swapped)
                decides = {
                    "id": question,
                    "question": sets.texts[question],
                    "answers": [[method, sets.answers[method][question]] for method in item.shown],
                    "criteria": criteria,
                    "asks": asks,
                    "replicate": replicate,
                    "swapped": swapped,
                }
                name = f"{question}: {item.shown[0]} before {item.shown[1]}"
                yield WorkUnit(f"{name}, replicate {replicate + 1}" if replicate else name, decides, item)

    async def ask(item: Comparison) -> dict[str, Any] | Rejected:
        one, other = (sets.answers[method][item.question] or SILENT for method in item.shown)
        request = judge_request(
            sets.texts[item.question],
            (one, other),
            judging.criteria,
            session.prompts,
            form=form,
            replicate=item.replicate,
        )
        found = await session.pool.ask(request, lambda reply: parse_verdicts(reply, judging.criteria))
        if isinstance(found, Rejected):
            return found
        return {
            "query_id": item.question,
            "answer_1_method": item.shown[0],
            "answer_2_method": item.shown[1],
            "swapped": item.swapped,
            "replicate": item.replicate,
            **{name: {"winner": SHOWN[each.winner], "explanation": each.reason} for name, each in found.items()},
        }

    rows: list[VerdictRow] = []
    async for outcome in await session.map("verdicts", units(), ask):
        item = outcome.item
        for name in judging.criteria:
            score = _SCORES[outcome.value[name]["winner"]]
            own = 1.0 - score if item.swapped else score
            rows.append(VerdictRow(item.pair, name, item.question, item.replicate, item.swapped, own))
    return rows


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


async def try_judge(session: Session, task: str, request: ChatRequest, accept: Callable[[ChatReply], object]) -> None:
    """Have the judge do its task once, before answers are made that it would then refuse to read.

    Raises:
        ConfigError: the judge gives no reply that can be used.
    """

    async def ask(request: ChatRequest) -> dict[str, Any] | Rejected:
        found = await session.pool.ask(request, accept)
        return found if isinstance(found, Rejected) else {}

    unit = WorkUnit(f"trial of {task}", {"asks": session.asks(ROLE, task)}, request)
    tried = await session.map("trial", [unit], ask)
    if tried.letters:
        raise ConfigError(
            f"No answer was made, because the model of role {ROLE} failed a trial: "
            f"{tried.letters[0].reason}. Set llm.roles.judge to a language model that can do it"
        )


async def judge_answers(session: Session, *, material: AnswerMaterial, judging: JudgingOptions) -> Findings:
    """Have answers judged, and return what is found.

    Raises:
        ConfigError: answers would have to be made, and the judge fails a trial.
        InputError: there is nothing to compare.
    """
    if material.modes:
        form = "judge" if await session.structured(ROLE) else None
        trial = judge_request(TRIAL_QUESTION, TRIAL_ANSWERS, judging.criteria, session.prompts, form=form)
        await try_judge(session, "judge", trial, lambda reply: parse_verdicts(reply, judging.criteria))
    sets = await material.gather(session)
    pairs = pairs_of(sets, judging.against)
    results = win_rates(await judge(session, sets, pairs, judging), pairs, judging.criteria)
    in_part = [
        f"{method}: {count_noun(count, 'answer lacks', 'answers lack')} parts whose call failed."
        for method, count in sets.in_part.items()
    ]
    sections = [*judging_sections(results), *([Text("Answers in part", in_part)] if in_part else [])]
    counts = {method: len(answers) for method, answers in sets.answers.items()}
    results |= {"answers": counts, "answer_copies": sets.copies, "answers_in_part": sets.in_part}
    return Findings(results, sections, [win_rate_table(results)], material.counts)


def win_rates(rows: Sequence[VerdictRow], pairs: Sequence[Pair], criteria: Sequence[str]) -> dict[str, Any]:
    """Return the results as JSON: docs/how-to/evaluate.md#judge-win-rates describes them."""
    place = {question: at for at, question in enumerate(dict.fromkeys(row.question for row in rows))}
    board = Board([""] * len(place), [" – ".join(pair) for pair in pairs], criteria)
    cells: dict[tuple[Pair, str], list[VerdictRow]] = {(pair, name): [] for pair, name in product(pairs, criteria)}
    for row in rows:
        cells[row.pair, row.criterion].append(row)
    for (pair, name), own in cells.items():
        scores: dict[str, list[float]] = {}
        for row in own:
            scores.setdefault(row.question, []).append(row.score)
        for question, each in scores.items():
            board.add(place[question], " – ".join(pair), {name: sum(each) / len(each)})
    rates = board.results(criteria, ())["systems"]
    found: dict[str, dict[str, Any]] = {title: {} for title in board.systems}
    for name in criteria:
        # rounded, so that two wins of three and one of three are as far from a draw, and tie in ranks
        tests = tested([np.round(2 * board.column(title, name) - 1, 9) for title in board.systems])
        for pair, title, test in zip(pairs, board.systems, tests, strict=True):
            own = cells[pair, name]
            found[title][name] = {
                **{sort: sum(row.score == score for row in own) for sort, score in _SORTS.items()},
                "win_rate": rates[title][name],
                **test,
                "position": position_bias(own),
            }
    return {
        "criteria": list(criteria),
        "questions": len(place),
        "verdicts": len(rows),
        "pairs": [
            {"first": pair[0], "second": pair[1], "criteria": found[title]}
            for pair, title in zip(pairs, board.systems, strict=True)
        ],
        "position": position_bias(rows),
    }


_SORTS = {"wins": 1.0, "ties": 0.5, "losses": 0.0}


def position_bias(rows: Sequence[VerdictRow]) -> dict[str, float | int | None]:
    """Return how far the order of the answers decides. Verdicts of several pairs and criteria may be mixed.

    Returns:
        `first_shown`: win rate of whichever answer stood first, 0.5 without bias. `when_first`, `when_second`: win rate
        of the pair's first method when its answer stood first, and second. `twice`: verdicts in both orders, of one
        replicate; `flipped`: of these, both decided, for different methods; `half_tied`: decided in one order, and a
        tie in the other.
    """
    orders: dict[tuple[Any, ...], dict[bool, float]] = {}
    for row in rows:
        orders.setdefault((row.pair, row.criterion, row.question, row.replicate), {})[row.swapped] = row.score
    twice = [(each[False], each[True]) for each in orders.values() if len(each) == 2]
    return {
        "first_shown": _mean([1.0 - row.score if row.swapped else row.score for row in rows]),
        "when_first": _mean([row.score for row in rows if not row.swapped]),
        "when_second": _mean([row.score for row in rows if row.swapped]),
        "twice": len(twice),
        "flipped": sum(0.5 not in scores and scores[0] != scores[1] for scores in twice),
        "half_tied": sum((one == 0.5) != (other == 0.5) for one, other in twice),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


_RULE = (
    "Every pair of answers is judged in both orders. A win rate is the mean over questions of the share of verdicts "
    "that the first method wins, a tie counting half; its interval is a 95 % bootstrap over questions. p is of the "
    "Wilcoxon signed-rank test over the questions' mean scores, corrected by Holm–Bonferroni over the pairs of methods "
    "of a criterion, as in appendix G of the GraphRAG paper."
)


def judging_sections(results: Mapping[str, Any]) -> list[Section]:
    """Return the sections of the page."""
    cells = list(_cells(results))
    charts = [results["criteria"]] if len(results["pairs"]) <= _MAX_PAIRS else [[name] for name in results["criteria"]]
    note = "The share of verdicts that the first method of a pair wins, with 95 % intervals; half is no difference."
    bars = [
        Bars(
            f"Win rates of the first of two{'' if len(names) > 1 else f': {names[0]}'}",
            {name: [(title, found["win_rate"]) for title, own, found in cells if own == name] for name in names},
            note,
        )
        for names in charts
    ]
    return [Text("How to read this", [_RULE]), win_rate_table(results), *bars, _position_table(cells)]


def _cells(results: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for pair in results["pairs"]:
        for name, found in pair["criteria"].items():
            yield f"{pair['first']} – {pair['second']}", name, found


def win_rate_table(results: Mapping[str, Any]) -> Table:
    """Return the win rates as a table."""
    rows: list[list[Cell]] = [
        [title, name, found["win_rate"], *(found[sort] for sort in _SORTS), p_text(found["p_holm"])]
        for title, name, found in _cells(results)
    ]
    columns = ["pair", "criterion", "win rate of the first", *_SORTS, "p (Holm)"]
    return Table("Win rates", columns, rows, form=".1%")


def _position_table(cells: Sequence[tuple[str, str, Mapping[str, Any]]]) -> Table:
    rows: list[list[Cell]] = []
    for title, name, found in cells:
        bias = found["position"]
        shares_ = [bias[sort] / bias["twice"] if bias["twice"] else None for sort in ("flipped", "half_tied")]
        rows.append([title, name, bias["first_shown"], bias["when_first"], bias["when_second"], *shares_])
    columns = ["pair", "criterion", "first shown wins", "first method, shown first", "… shown second"]
    columns += ["verdicts that flip", "tie in one order"]
    note = (
        "Without bias the answer shown first wins as often as the other, and a method as often in either place. A "
        "verdict flips where the judge prefers the other method once the answers are exchanged."
    )
    return Table("Position", columns, rows, note, ".1%")
