"""`hirag-dist eval qa`: exact match and F1 of short answers, by mode; or of answers that others recorded."""

from __future__ import annotations

from typing import Annotated

import typer

from hirag_dist.cli._eval import evaluate
from hirag_dist.cli._eval_options import (
    EvalOptions,
    IdFieldOption,
    LimitOption,
    ModesOption,
    QuestionFieldOption,
    QuestionsOption,
    TypeFieldOption,
    VariantOption,
    comma_list,
)
from hirag_dist.cli._options import OptionalIndexOption
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation import Findings, QuestionFields, Session, read_questions
from hirag_dist.evaluation.kinds.qa import evaluate_answers, score_recorded
from hirag_dist.evaluation.kinds.scoring_rules import ScoringRules
from hirag_dist.evaluation.metrics.exact_match_f1 import DEFINITIONS, REFUSALS


def qa(
    options: EvalOptions,
    questions: QuestionsOption,
    index: OptionalIndexOption = None,
    modes: ModesOption = "hirag,naive",
    answers: Annotated[
        str | None, typer.Option(metavar="FILE", help="Score recorded answers instead of asking an index.")
    ] = None,
    metric: Annotated[
        str, typer.Option(metavar="NAME,…", help=f"Definitions, the first shown first: {', '.join(DEFINITIONS)}.")
    ] = "hotpotqa",
    refusal: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="An answer that says that there is none, besides the usual ones."),
    ] = None,
    unanswerable_types: Annotated[
        str, typer.Option(metavar="TYPE,…", help="Types of questions that have no answer: refusing them is right.")
    ] = "",
    variant: VariantOption = None,
    limit: LimitOption = None,
    question_field: QuestionFieldOption = None,
    question_id_field: IdFieldOption = None,
    type_field: TypeFieldOption = None,
    gold_answer_field: Annotated[str | None, typer.Option(help="Field with the gold answer, or answers.")] = None,
    aliases_field: Annotated[str | None, typer.Option(help="Field with other right answers.")] = None,
) -> None:
    """Score short answers by exact match and F1, with intervals, paired differences and costs."""
    if (index is None) == (answers is None):
        raise ConfigError("eval qa asks an index (--index URI) or scores a file (--answers FILE): give one of the two")
    definitions = comma_list(metric)
    if not definitions or not set(definitions) <= DEFINITIONS.keys():
        raise ConfigError(f"--metric {metric}: give one or several of: {', '.join(DEFINITIONS)}")
    rules = ScoringRules(tuple(definitions), (*REFUSALS, *(refusal or ())), frozenset(comma_list(unanswerable_types)))
    loaded = options.load()
    named = QuestionFields(
        question=question_field,
        id=question_id_field,
        type=type_field,
        answer=gold_answer_field,
        aliases=aliases_field,
    )
    asked = read_questions(questions, named, limit)

    async def work(session: Session) -> Findings:
        if answers is not None:
            return await score_recorded(session, asked, answers, rules)
        return await evaluate_answers(session, asked, comma_list(modes), rules)

    evaluate(options.session("qa", index, variant), loaded, work, options.json)
