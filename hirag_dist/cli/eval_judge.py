"""`hirag-dist eval judge`: win rates of answers, as language models judge them, or as they were judged before."""

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
    comma_list,
)
from hirag_dist.cli._options import OptionalIndexOption, refuse_idle
from hirag_dist.core.prompts.evaluation_templates import CRITERIA
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation import QuestionFields, Questions, SessionOptions, read_questions
from hirag_dist.evaluation.answer_collections import answer_sources
from hirag_dist.evaluation.kinds.judge import (
    ROLE,
    AnswerMaterial,
    JudgingOptions,
    criteria_of,
    judge_answers,
    judge_roles,
    recount,
    require_llm,
)

JudgementsOption = Annotated[
    list[str] | None,
    typer.Option("--judgements", metavar="FILE", help="Recorded verdicts: count them, and ask no model."),
]


def judge(
    options: EvalOptions,
    answers: AnswersOption = None,
    questions: AskedQuestionsOption = None,
    index: OptionalIndexOption = None,
    modes: AskedModesOption = None,
    judge: JudgeOption = None,
    replicates: Annotated[int, typer.Option(min=1, help="Times that the judge is asked the same.")] = 1,
    criteria: Annotated[str, typer.Option(metavar="NAME,…", help="What is judged, by commas.")] = ",".join(CRITERIA),
    against: Annotated[
        str | None, typer.Option(metavar="METHOD", help="Compare all with this one, not each with each.")
    ] = None,
    judgements: JudgementsOption = None,
    variant: VariantOption = None,
    question_field: QuestionFieldOption = None,
    question_id_field: IdFieldOption = None,
    limit: LimitOption = None,
) -> None:
    """Compare answers two by two, in both orders: win rates, and how far the position of an answer decides."""
    loaded = options.load()
    if judgements:
        given = {"--answers": answers, "--questions": questions, "--modes": modes}
        given |= {"--index": index, "--judge": judge, "--against": against}
        refuse_idle(given, "--judgements", "it calls no model and reads no answers")
        order = SessionOptions("judge", options.out, fresh=options.fresh)
        evaluate(order, loaded, partial(recount, paths=judgements), options.json)
        return
    material = read_material(answers, questions, index, modes, QuestionFields(question_field, question_id_field), limit)
    if not material.sources and index is None:
        raise ConfigError("give answers to compare: --answers FILE, or --index URI with --modes and --questions")
    roles = judge_roles(judge, loaded)
    judging = JudgingOptions(criteria_of(criteria), next(iter(roles), ROLE), replicates, against)
    require_llm("judge", roles or {ROLE: loaded.llm.roles.judge}, loaded)
    order = options.session("judge", index, variant, roles)
    evaluate(order, loaded, partial(judge_answers, material=material, judging=judging), options.json)


def read_material(
    answers: list[str] | None,
    questions: str | None,
    index: str | None,
    modes: str | None,
    fields: QuestionFields,
    limit: int | None,
) -> AnswerMaterial:
    """Return the answers that the options name, or whose making they order.

    Raises:
        ConfigError: an index without modes or questions, or these without an index.
        InputError: the question file cannot be read.
    """
    if index is not None and (modes is None or questions is None):
        raise ConfigError("--index answers questions: give --questions FILE and --modes, as in --modes hirag,naive")
    if index is None and modes is not None:
        raise ConfigError("--modes are modes of an index: name it with --index URI")
    if limit is not None and questions is None:
        raise ConfigError("--limit is of the questions of a file: give it with --questions")
    read = Questions(()) if questions is None else read_questions(questions, fields, limit)
    return AnswerMaterial(tuple(answer_sources(answers or [])), read, tuple(comma_list(modes or "")))
