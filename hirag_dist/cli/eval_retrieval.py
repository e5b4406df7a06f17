"""`hirag-dist eval retrieval`: gold evidence among what is retrieved."""

from __future__ import annotations

from functools import partial
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
from hirag_dist.cli._options import IndexOption
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation import QuestionFields, read_questions
from hirag_dist.evaluation.kinds.retrieval import evaluate_retrieval


def retrieval(
    options: EvalOptions,
    index: IndexOption,
    questions: QuestionsOption,
    modes: ModesOption = "hirag,local,global,bridge,nobridge,naive,flat",
    k: Annotated[str, typer.Option("--k", metavar="K,…", help="Sources that count, by commas.")] = "2,5,10",
    variant: VariantOption = None,
    question_field: QuestionFieldOption = None,
    question_id_field: IdFieldOption = None,
    gold_field: Annotated[
        str | None, typer.Option(help="Field with the ids of the records that hold the evidence.")
    ] = None,
    type_field: TypeFieldOption = None,
    limit: LimitOption = None,
) -> None:
    """Recall@k and all-evidence@k of gold passages by mode, with intervals; what each level reaches; times."""
    loaded = options.load()
    fields = QuestionFields(question=question_field, id=question_id_field, type=type_field, gold=gold_field)
    asked = read_questions(questions, fields, limit)
    numbers = _numbers(k)
    work = partial(evaluate_retrieval, questions=asked, modes=comma_list(modes), ks=numbers)
    evaluate(options.session("retrieval", index, variant), loaded, work, options.json, "Retrieval")


def _numbers(text: str) -> list[int]:
    try:
        return [int(item) for item in comma_list(text)]
    except ValueError:
        raise ConfigError(f"--k takes whole numbers by commas, not {text!r}") from None
