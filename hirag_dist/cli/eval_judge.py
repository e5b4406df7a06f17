"""`hirag-dist eval judge`: win rates of answers, as language models judge them, or as they were judged before."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hirag_dist.cli._eval import evaluate
from hirag_dist.cli._eval_options import AnswerOptions
from hirag_dist.core.prompts.evaluation_templates import CRITERIA
from hirag_dist.evaluation.kinds.judge import JudgingOptions, criteria_of, judge_answers, recount


def judge(
    options: AnswerOptions,
    replicates: Annotated[int, typer.Option(min=1, help="Times that the judge is asked the same.")] = 1,
    criteria: Annotated[str, typer.Option(metavar="NAME,…", help="What is judged, by commas.")] = ",".join(CRITERIA),
    against: Annotated[
        str | None, typer.Option(metavar="METHOD", help="Compare all with this one, not each with each.")
    ] = None,
    judgements: Annotated[
        list[str] | None,
        typer.Option("--judgements", metavar="FILE", help="Recorded verdicts: count them, and ask no model."),
    ] = None,
) -> None:
    """Compare answers two by two, in both orders: win rates, and how far the position of an answer decides."""
    loaded = options.load()
    if judgements:
        order = options.recorded("judge", "--judgements", {"--against": against})
        evaluate(order, loaded, partial(recount, paths=judgements), options.json)
        return
    material = options.material("compare")
    named = criteria_of(criteria)
    order, role = options.judged("judge", loaded)
    judging = JudgingOptions(named, role, replicates, against)
    evaluate(order, loaded, partial(judge_answers, material=material, judging=judging), options.json)
