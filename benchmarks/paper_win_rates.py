"""Compare the win rates of the HiRAG paper with those of its published verdicts.

Usage: `python benchmarks/paper_win_rates.py DATA`

DATA is a folder that holds `mix_judgements` (verdicts of GPT-4o on the Mix answers, and what to expect of them) and,
for the lengths of the answers, `qfs_mix`. A line of JSON for each cell of the Mix columns of Table 1, which are the
GPT-4o columns of Table 6 where these have them; then a line for each comparison on position and length, and one in all.

Two rules of which answer was whose. Published: by the row in the published file, as the paper's evaluation counted; a
judge's reply that could not be read was dropped without a placeholder, so in six of nine files the rows behind it are
taken for the wrong order or question. Aligned: by the question and order that each record was found to belong to.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hirag_dist.core.text.tokens import counter
from hirag_dist.evaluation import read_questions
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_recorded
from hirag_dist.evaluation.kinds.judge import answer_lengths
from hirag_dist.evaluation.kinds.judge_report import JudgingFinding, findings_of
from hirag_dist.evaluation.metrics.win_rates import VerdictTable, length_bias, position_bias
from hirag_dist.evaluation.verdict_records import read_verdicts
from hirag_dist.types import IntVector
from hirag_dist.types.statistics import Interval

_IN_TABLE_6 = ("NaiveRAG", "GraphRAG", "LightRAG", "FastGraphRAG", "KAG")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    data = parser.parse_args().data
    folder = data / "mix_judgements"
    recorded = read_verdicts([str(folder / "judgements.jsonl")])
    if recorded.by_row is None or recorded.unreadable:
        raise SystemExit(f"{folder}: every record should have a row number, and be readable")
    expected = json.loads((folder / "expected_win_rates.json").read_text())
    cells = list(compare(expected, recorded.by_row, recorded.verdicts))
    for cell in cells:
        print_line(cell)
    for line in biases(data / "qfs_mix", recorded.verdicts):
        print_line(line)
    in_paper = [cell for cell in cells if cell["paper"] is not None]
    reproducible = [cell for cell in in_paper if cell["reproducible"]]
    print_line(
        {
            "case": "all",
            "verdicts": len(recorded.verdicts),
            "cells_in_paper": len(in_paper),
            "reproducible": len(reproducible),
            "equal_where_reproducible": sum(cell["equal"] for cell in reproducible),
            "equal_elsewhere": sum(cell["equal"] for cell in in_paper if not cell["reproducible"]),
            "counts_as_expected": sum(cell["counts_as_expected"] for cell in cells),
            "counts": len(cells),
        }
    )


def compare(expected: list[dict[str, Any]], by_row: VerdictTable, aligned: VerdictTable) -> Iterator[dict[str, Any]]:
    """Yield each cell: what the paper has, and what both rules give."""
    found = {rule: by_cell(verdicts) for rule, verdicts in (("published", by_row), ("aligned", aligned))}
    for cell in expected:
        key = cell["comparison"], cell["dimension"].lower()
        published, recounted = found["published"][key], found["aligned"][key]
        paper = cell.get("paper_table1")
        hirag_first = cell["first_method"] == "hirag"
        shown: dict[str, dict[str, Any]] = {
            rule: {
                "wins": each.tally.wins,
                "of": each.tally.n,
                "pct": percent(each.win_rate, hirag_first or paper is None),
            }
            for rule, each in (("published", published), ("aligned", recounted))
        }
        yield {
            "case": "cell",
            "comparison": cell["comparison"],
            "first": cell["first_method"],
            "second": cell["second_method"],
            "criterion": key[1],
            "tables": [] if paper is None else [1, 6] if cell["paper_column"] in _IN_TABLE_6 else [1],
            "paper": None if paper is None else paper["hirag_pct"],
            **shown,
            "reproducible": bool(cell.get("reproduces_paper")),
            "equal": paper is not None and round(shown["published"]["pct"]["value"], 1) == paper["hirag_pct"],
            "counts_as_expected": all(
                [each.tally.wins, each.tally.losses]
                == [cell[f"{rule}_rule"][f"{place}_wins"] for place in ("first", "second")]
                for rule, each in (("published", published), ("aligned", recounted))
            ),
        }


def by_cell(verdicts: VerdictTable) -> dict[tuple[str, str], JudgingFinding]:
    """Return the findings by comparison and criterion."""
    return {(each.pair.name, each.criterion): each for each in findings_of(verdicts)}


def percent(rate: Interval, of_first: bool) -> dict[str, float]:
    """Return a win rate in percent: of the first method, or of the second."""
    value, low, high = (rate.value, rate.low, rate.high) if of_first else (1 - rate.value, 1 - rate.high, 1 - rate.low)
    return {"value": round(100 * value, 4), "low": round(100 * low, 1), "high": round(100 * high, 1)}


def biases(answers: Path, verdicts: VerdictTable) -> Iterator[dict[str, Any]]:
    """Yield the effect of position and length on the overall verdicts of each comparison."""
    lengths: dict[int, IntVector] = {}
    if answers.is_dir():
        sets = AnswerCollections()
        questions = read_questions(str(answers / "queries.jsonl"))
        add_recorded(sets, [(None, str(answers / "answers.jsonl"))], questions.items)
        lengths = answer_lengths(sets, verdicts, counter("o200k_base"))
    for place, pair in enumerate(verdicts.pairs):
        part = verdicts.where(pair=place, criterion=verdicts.criteria.index("overall"))
        position = position_bias(part)
        line: dict[str, Any] = {
            "case": "bias",
            "comparison": pair.name,
            "first": pair.first,
            "second": pair.second,
            "first_shown_wins": position.first_shown,
            "first_method_shown_first": position.when_first,
            "first_method_shown_second": position.when_second,
            "flipped": position.flipped,
            "in_both_orders": position.twice,
        }
        if place in lengths:
            length = length_bias(part, lengths[place])
            line |= {
                "mean_tokens": [round(mean) for mean in (length.mean_first, length.mean_second) if mean is not None],
                "longer_wins": length.longer_wins,
                "first_method_where_longer": length.when_longer,
                "first_method_where_shorter": length.when_shorter,
            }
        yield line


def print_line(line: dict[str, Any]) -> None:
    shown = {key: round(value, 4) if isinstance(value, float) else value for key, value in line.items()}
    print(json.dumps({"benchmark": "paper_win_rates"} | shown), flush=True)


if __name__ == "__main__":
    main()
