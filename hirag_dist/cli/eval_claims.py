"""`hirag-dist eval claims`: answers measured by the factual claims that they make."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hirag_dist.cli._eval import evaluate
from hirag_dist.cli._eval_options import (
    AnswersOption,
    AskedModesOption,
    AskedQuestionsOption,
    EvalOptions,
    IdFieldOption,
    JudgeOption,
    LimitOption,
    QuestionFieldOption,
    VariantOption,
)
from hirag_dist.cli._options import OptionalIndexOption, refuse_idle
from hirag_dist.cli.eval_judge import read_material
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation import QuestionFields, SessionOptions
from hirag_dist.evaluation.kinds.claims import count_claims, recount_claims
from hirag_dist.evaluation.kinds.judge import ROLE, judge_roles, require_llm


def claims(
    options: EvalOptions,
    answers: AnswersOption = None,
    questions: AskedQuestionsOption = None,
    index: OptionalIndexOption = None,
    modes: AskedModesOption = None,
    judge: JudgeOption = None,
    recorded: Annotated[
        list[str] | None,
        typer.Option("--claims", metavar="FILE", help="Recorded claims: count them, and ask no model."),
    ] = None,
    judgements: Annotated[
        list[str] | None,
        typer.Option("--judgements", metavar="FILE", help="A judge's verdicts on the same answers, to compare with."),
    ] = None,
    variant: VariantOption = None,
    question_field: QuestionFieldOption = None,
    question_id_field: IdFieldOption = None,
    limit: LimitOption = None,
) -> None:
    """Count the factual claims of answers, and the clusters that they make."""
    loaded = options.load()
    verdicts = tuple(judgements or ())
    if recorded:
        refuse_idle(
            {"--index": index, "--answers": answers, "--questions": questions, "--modes": modes, "--judge": judge},
            "--claims",
            "it calls no model and reads no answers",
        )
        work = partial(recount_claims, paths=recorded, judgements=verdicts)
        evaluate(SessionOptions("claims", options.out, fresh=options.fresh), loaded, work, options.json)
        return
    material = read_material(answers, questions, index, modes, QuestionFields(question_field, question_id_field), limit)
    if not material.sources and index is None:
        raise ConfigError("give answers to take apart: --answers FILE, or --index URI with --modes and --questions")
    roles = judge_roles(judge, loaded)
    require_llm("claims", roles or {ROLE: loaded.llm.roles.judge}, loaded)
    order = options.session("claims", index, variant, roles)
    role = next(iter(roles), ROLE)
    evaluate(order, loaded, partial(count_claims, material=material, role=role, judgements=verdicts), options.json)
