"""`hirag-dist eval claims`: answers measured by the factual claims that they make."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hirag_dist.cli._eval import evaluate
from hirag_dist.cli._eval_options import AnswerOptions
from hirag_dist.evaluation.kinds.claims import count_claims, recount_claims


def claims(
    options: AnswerOptions,
    recorded: Annotated[
        list[str] | None,
        typer.Option("--claims", metavar="FILE", help="Recorded claims: count them, and ask no model."),
    ] = None,
    judgements: Annotated[
        list[str] | None,
        typer.Option("--judgements", metavar="FILE", help="A judge's verdicts on the same answers, to compare with."),
    ] = None,
) -> None:
    """Count the factual claims of answers, and the clusters that they make."""
    loaded = options.load()
    verdicts = tuple(judgements or ())
    if recorded:
        order = options.recorded("claims", "--claims")
        evaluate(order, loaded, partial(recount_claims, paths=recorded, judgements=verdicts), options.json)
        return
    material = options.material("take apart")
    order, role = options.judged("claims", loaded)
    evaluate(order, loaded, partial(count_claims, material=material, role=role, judgements=verdicts), options.json)
