"""`hirag-dist eval retrieval`: gold evidence among what is retrieved."""

from __future__ import annotations

from typing import Annotated

import typer

from hirag_dist.cli._eval import (
    EvalIndexOption,
    FreshOption,
    GoldFieldOption,
    IdFieldOption,
    LimitOption,
    ModesOption,
    OutOption,
    QuestionFieldOption,
    QuestionsOption,
    TypeFieldOption,
    VariantOption,
    comma_list,
    evaluate,
    read_variants,
)
from hirag_dist.cli._options import (
    ConfigOption,
    JsonOption,
    MaxTokensOption,
    MaxUsdOption,
    SetOption,
    SnapshotOption,
    configuration,
)
from hirag_dist.cli._output import use_json
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation import QuestionFields, SessionOptions, read_questions
from hirag_dist.evaluation.retrieval import evaluate_retrieval


def register(group: typer.Typer) -> None:
    """Add the command to the group."""
    group.command("retrieval")(retrieval)


def retrieval(
    out: OutOption,
    index: EvalIndexOption,
    questions: QuestionsOption,
    modes: ModesOption = "hirag,local,global,bridge,nobridge,naive,flat",
    k: Annotated[str, typer.Option("--k", metavar="K,…", help="Sources that count, by commas.")] = "2,5,10",
    variant: VariantOption = None,
    question_field: QuestionFieldOption = None,
    question_id_field: IdFieldOption = None,
    gold_field: GoldFieldOption = None,
    type_field: TypeFieldOption = None,
    limit: LimitOption = None,
    snapshot: SnapshotOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    fresh: FreshOption = False,
    json: JsonOption = False,
) -> None:
    """Recall@k and all-evidence@k of gold passages by mode, with intervals; what each level reaches; times."""
    use_json(json)
    loaded = configuration(config, settings).config
    fields = QuestionFields(question=question_field, id=question_id_field, type=type_field, gold=gold_field)
    asked = read_questions(questions, fields, limit)
    order = SessionOptions(
        "retrieval",
        out,
        index,
        snapshot,
        read_variants(variant, config, settings),
        max_usd=max_usd,
        max_tokens=max_tokens,
        fresh=fresh,
    )
    numbers = _numbers(k)
    evaluate(
        order, loaded, lambda session: evaluate_retrieval(session, asked, comma_list(modes), numbers), json, "Retrieval"
    )


def _numbers(text: str) -> list[int]:
    try:
        return [int(item) for item in comma_list(text)]
    except ValueError:
        raise ConfigError(f"--k takes whole numbers by commas, not {text!r}") from None
