"""Verdicts as records: as this package writes them, and as others published theirs; from records to a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hirag_dist.core.prompts.evaluation_templates import CRITERIA
from hirag_dist.evaluation.metrics.judge_replies import FIRST, SECOND, TIE, winner_of
from hirag_dist.evaluation.metrics.win_rates import AnswerPair, VerdictRow, VerdictTable, verdict_table
from hirag_dist.evaluation.questions import question_id, take_records
from hirag_dist.readers import Unreadable

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
