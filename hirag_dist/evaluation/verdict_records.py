"""Verdicts as records: as this package writes them, and as others published theirs; from records to columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from hirag_dist.core.prompts.evaluation_templates import CRITERIA
from hirag_dist.errors import InputError
from hirag_dist.evaluation.metrics.judge_replies import FIRST, SECOND, TIE, winner_of
from hirag_dist.evaluation.metrics.win_rates import AnswerPair, VerdictTable
from hirag_dist.evaluation.questions import question_id, rows_of
from hirag_dist.readers import Unreadable

SHOWN: Final = {FIRST: "Answer 1", SECOND: "Answer 2", TIE: "Tie"}
RECORDED_JUDGE: Final = "recorded"
_SCORES = {FIRST: 1.0, SECOND: 0.0, TIE: 0.5}


@dataclass
class _Places:
    """Names and their places, in the order in which they came."""

    at: dict[Any, int] = field(default_factory=dict)

    def __getitem__(self, name: Any) -> int:
        return self.at.setdefault(name, len(self.at))


class VerdictColumns:
    """Collects verdicts one by one, in 49 bytes each."""

    def __init__(self) -> None:
        self._pairs, self._criteria, self._questions, self._judges = _Places(), _Places(), _Places(), _Places()
        self._columns = [array("q") for _ in range(5)]
        self._swapped = array("b")
        self._scores = array("d")

    def add(
        self, pair: AnswerPair, criterion: str, question: str, judge: str, replicate: int, swapped: bool, winner: int
    ) -> None:
        """Add a verdict.

        Args:
            swapped: whether the pair's second method was shown first.
            winner: `FIRST` or `SECOND` as they were shown, or `TIE`.
        """
        places = (self._pairs[pair], self._criteria[criterion], self._questions[question], self._judges[judge])
        for column, value in zip(self._columns, (*places, replicate), strict=True):
            column.append(value)
        self._swapped.append(swapped)
        self._scores.append(1.0 - _SCORES[winner] if swapped else _SCORES[winner])

    def verdicts(self, pairs: Sequence[AnswerPair] = (), criteria: Sequence[str] = ()) -> VerdictTable:
        """Return them all.

        Args:
            pairs, criteria: these first and in this order, whether or not there is a verdict on them.
        """
        pair_order, criterion_order = (
            list(dict.fromkeys([*first, *places.at]))
            for first, places in ((pairs, self._pairs), (criteria, self._criteria))
        )
        pair, criterion, question, judge, replicate = (np.array(column, np.int64) for column in self._columns)
        return VerdictTable(
            tuple(pair_order),
            tuple(criterion_order),
            tuple(self._questions.at),
            tuple(self._judges.at),
            _moved(self._pairs, pair_order)[pair],
            _moved(self._criteria, criterion_order)[criterion],
            question,
            judge,
            replicate,
            np.array(self._swapped, bool),
            np.array(self._scores, np.float64),
        )


def _moved(places: _Places, order: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where each place is in another order."""
    new = {name: place for place, name in enumerate(order)}
    return np.array([new[name] for name in places.at], np.int64)


@dataclass(frozen=True)
class RecordedVerdicts:
    """Contents of verdict files.

    Attributes:
        verdicts: the order of the answers taken from the records themselves.
        by_row: the same with the order taken from the row, where the records have a row number; else None. HiRAG's
            published evaluation counts so: rows below the number of questions show the pair's first method first. A
            verdict that was dropped without a placeholder then shifts all rows after it, and some are turned round.
        unreadable: records and verdicts that can't be used, and why.
    """

    verdicts: VerdictTable
    by_row: VerdictTable | None
    unreadable: tuple[Unreadable, ...]


def read_verdicts(paths: Sequence[str]) -> RecordedVerdicts:
    """Read recorded verdicts: JSON Lines, JSON or Parquet with one record for each question, pair and order.

    A record has `query_id` (or `question_id`), `answer_1_method` and `answer_2_method`, and for each criterion
    {winner, explanation}; it may have `swapped`, `judge`, `replicate`, `comparison`, and `record`, the row in the file
    that it was published in. Lines of `outcomes/verdicts.jsonl` are such records.

    Raises:
        InputError: a file is not there, or holds no verdict.
    """
    aligned, by_row = VerdictColumns(), VerdictColumns()
    unreadable: list[Unreadable] = []
    read: list[_Read] = []
    firsts: dict[tuple[str, frozenset[str]], str] = {}
    for path in paths:
        n_before = len(read)
        for row in rows_of(path):
            if isinstance(row, Unreadable):
                unreadable.append(row)
                continue
            record, reasons = _read_record(row.fields, firsts)
            unreadable += [Unreadable(path, row.record, reason) for reason in reasons]
            read += [] if record is None else [record]
        if len(read) == n_before:
            why = f": {unreadable[-1].reason}" if unreadable else ""
            raise InputError(f"{path} holds no verdict that can be used{why}")
    n_questions = len({each.question for each in read})
    numbered = all(each.row is not None for each in read)
    for each in read:
        each.add_to(aligned, each.swapped)
        if numbered and each.row is not None:
            each.add_to(by_row, each.row >= n_questions)
    criteria = [name for name in CRITERIA if any(name in each.winners for each in read)]
    return RecordedVerdicts(
        aligned.verdicts(criteria=criteria),
        by_row.verdicts(criteria=criteria) if numbered else None,
        tuple(unreadable),
    )


@dataclass(frozen=True, slots=True)
class _Read:
    pair: AnswerPair
    question: str
    judge: str
    replicate: int
    swapped: bool
    row: int | None
    winners: dict[str, int]

    def add_to(self, columns: VerdictColumns, swapped: bool) -> None:
        for criterion, winner in self.winners.items():
            columns.add(self.pair, criterion, self.question, self.judge, self.replicate, swapped, winner)


def _read_record(
    fields: Mapping[str, Any], firsts: dict[tuple[str, frozenset[str]], str]
) -> tuple[_Read | None, list[str]]:
    """Return a record's verdicts, and why some cannot be used.

    Args:
        firsts: comparison and methods → the method that counts as first, which the first record decides.
    """
    if isinstance(fields.get("value"), dict):  # a line of outcomes/verdicts.jsonl
        fields = fields["value"]
    if "dead_letter" in fields:
        return None, [f"a dead letter: {fields['dead_letter']}"]
    question = question_id(fields)
    shown = [fields.get(f"answer_{number}_method") for number in (1, 2)]
    if not question or not all(isinstance(name, str) and name for name in shown):
        return None, ["no query_id, answer_1_method and answer_2_method"]
    one, other = str(shown[0]), str(shown[1])
    if one == other:
        return None, [f"both answers are of {one}"]
    name = fields.get("comparison")
    comparison = name if isinstance(name, str) else ""
    swapped = fields.get("swapped")
    group = (comparison, frozenset((one, other)))
    first = firsts.setdefault(group, other if swapped is True else one)
    if isinstance(swapped, bool) and swapped != (first == other):
        return None, [f"swapped is {swapped}, and records before it have {first} as the first method"]
    winners: dict[str, int] = {}
    reasons: list[str] = []
    for criterion, said in fields.items():
        if not isinstance(said, dict) or not any(part.lower() == "winner" for part in said):
            continue
        winner = winner_of(next(value for part, value in said.items() if part.lower() == "winner"), (one, other))
        if winner is None:
            reasons.append(f"the winner of {criterion} is neither answer nor a tie")
        else:
            winners[criterion.strip().lower()] = winner
    if not winners:
        return None, reasons or ["no criterion with a winner"]
    judge, replicate, row = fields.get("judge"), fields.get("replicate"), fields.get("record")
    return _Read(
        AnswerPair(first, other if first == one else one, comparison),
        question,
        judge if isinstance(judge, str) and judge else RECORDED_JUDGE,
        replicate if isinstance(replicate, int) and replicate > 0 else 0,
        first == other,
        row if isinstance(row, int) else None,
        winners,
    ), reasons


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


def add_record(columns: VerdictColumns, pair: AnswerPair, record: Mapping[str, Any], criteria: Iterable[str]) -> None:
    """Add the verdicts of a record of `write_verdict`."""
    winners = {text: winner for winner, text in SHOWN.items()}
    for criterion in criteria:
        winner = winners[record[criterion]["winner"]]
        columns.add(
            pair, criterion, record["query_id"], record["judge"], record["replicate"], record["swapped"], winner
        )
