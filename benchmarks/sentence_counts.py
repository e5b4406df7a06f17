"""Measure how far a judge prefers the answer that has more sentences.

Usage: `python benchmarks/sentence_counts.py DATA`

DATA is a folder that holds `mix_judgements` (verdicts of GPT-4o on the Mix answers) and `qfs_mix` (the answers).
Sentences and lines of three words or more stand in for claims, since no model was asked to list these: what a count of
claims has to beat before it says more than length does. A line of JSON for each criterion, measure and pair of methods,
as `eval claims --judgements` gives them.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from hirag_dist.evaluation import read_questions
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_recorded
from hirag_dist.evaluation.kinds.claims import ClaimCounts, claim_results
from hirag_dist.evaluation.verdict_records import read_verdicts

_ENDS = re.compile(r"(?<=[.!?])\s+|\n+")
_MIN_WORDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    data = parser.parse_args().data
    sets = AnswerCollections()
    questions = read_questions(str(data / "qfs_mix" / "queries.jsonl"))
    add_recorded(sets, [(None, str(data / "qfs_mix" / "answers.jsonl"))], questions.items)
    counts = ClaimCounts()
    for method, answers in sets.answers.items():
        for question, answer in answers.items():
            counts.add(method, question, [part for part in _ENDS.split(answer) if len(part.split()) >= _MIN_WORDS])
    verdicts = read_verdicts([str(data / "mix_judgements" / "judgements.jsonl")]).verdicts
    for row in claim_results(counts, verdicts)["agreement"]:
        shown = row | {"rate": None if row["rate"] is None else round(row["rate"], 4)}
        print(json.dumps({"benchmark": "sentence_counts"} | shown), flush=True)


if __name__ == "__main__":
    main()
