"""`hirag-dist eval KIND`: evaluations on the user's own questions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hirag_dist.cli._command_line import flattened
from hirag_dist.cli._eval import (
    AnswerOptions,
    EvalOptions,
    IdFieldOption,
    LimitOption,
    ModesOption,
    QuestionFieldOption,
    QuestionsOption,
    TypeFieldOption,
    VariantOption,
    comma_list,
    evaluate,
)
from hirag_dist.cli._options import IndexOption, OptionalIndexOption
from hirag_dist.core.prompts.evaluation_templates import CRITERIA
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation import Findings, QuestionFields, Session, read_questions
from hirag_dist.evaluation.kinds.claims import count_claims
from hirag_dist.evaluation.kinds.coverage import evaluate_coverage
from hirag_dist.evaluation.kinds.judge import JudgingOptions, criteria_of, judge_answers, require_llm
from hirag_dist.evaluation.kinds.qa import ScoringRules, evaluate_answers, score_recorded
from hirag_dist.evaluation.kinds.questions import GenerationOptions, describe_corpus, make_questions, question_findings
from hirag_dist.evaluation.kinds.retrieval import evaluate_retrieval
from hirag_dist.evaluation.metrics.exact_match_f1 import DEFINITIONS, REFUSALS
from hirag_dist.readers import clean_text


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
    """Recall@k and all-evidence@k of gold passages by mode, with intervals; times."""
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


def qa(
    options: EvalOptions,
    questions: QuestionsOption,
    index: OptionalIndexOption = None,
    modes: ModesOption = "hirag,naive",
    answers: Annotated[
        str | None, typer.Option(metavar="FILE", help="Score recorded answers instead of asking an index.")
    ] = None,
    metric: Annotated[
        str, typer.Option(metavar="NAME", help=f"Definition of EM and F1: {', '.join(DEFINITIONS)}.")
    ] = "hotpotqa",
    refusal: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="An answer that says that there is none, besides the usual ones."),
    ] = None,
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
    if metric not in DEFINITIONS:
        raise ConfigError(f"Invalid --metric: {metric}; there are: {', '.join(DEFINITIONS)}")
    rules = ScoringRules(metric, (*REFUSALS, *(refusal or ())))
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


def judge(
    options: AnswerOptions,
    replicates: Annotated[int, typer.Option(min=1, help="Times that the judge is asked the same.")] = 1,
    criteria: Annotated[str, typer.Option(metavar="NAME,…", help="What is judged, by commas.")] = ",".join(CRITERIA),
    against: Annotated[
        str | None, typer.Option(metavar="METHOD", help="Compare all with this one, not each with each.")
    ] = None,
) -> None:
    """Compare answers two by two, in both orders: win rates, and how far the position of an answer decides."""
    loaded = options.load()
    material = options.material("compare")
    judging = JudgingOptions(criteria_of(criteria), replicates, against)
    require_llm("judge", loaded)
    work = partial(judge_answers, material=material, judging=judging)
    evaluate(options.session("judge", options.index, options.variant), loaded, work, options.json)


def claims(options: AnswerOptions) -> None:
    """Count the factual claims of answers, and the clusters that they make."""
    loaded = options.load()
    material = options.material("take apart")
    require_llm("claims", loaded)
    work = partial(count_claims, material=material)
    evaluate(options.session("claims", options.index, options.variant), loaded, work, options.json)


def questions(
    options: EvalOptions,
    index: OptionalIndexOption = None,
    description: Annotated[
        str | None,
        typer.Option(metavar="TEXT|@FILE", help="What the corpus is about. [the index's broadest reports]"),
    ] = None,
    personas: Annotated[int, typer.Option(min=1, max=100, help="Users of the corpus.")] = 5,
    tasks: Annotated[int, typer.Option(min=1, max=100, help="Tasks of each user.")] = 5,
    per_task: Annotated[int, typer.Option("--questions", min=1, max=100, help="Questions of each task.")] = 5,
) -> None:
    """Make questions that need an understanding of the whole corpus."""
    loaded = options.load()
    told = None if description is None else read_description(description)
    if told is None and index is None:
        raise ConfigError("say what the corpus is about: --description TEXT or @FILE, or --index URI")
    require_llm("questions", loaded)
    wanted = GenerationOptions(personas, tasks, per_task)

    async def work(session: Session) -> Findings:
        about = told
        if about is None and session.snapshot is not None:
            about = describe_corpus(session.snapshot, session.count_tokens)
        assert about is not None
        return question_findings(session, await make_questions(session, about, wanted), about)

    evaluate(options.session("questions", index), loaded, work, options.json)


def read_description(given: str) -> str:
    """Return a description: the text, or that of a file where it begins with @.

    Raises:
        ConfigError: the file cannot be read, or there is no text.
    """
    text = given
    if given.startswith("@"):
        try:
            text = Path(given[1:]).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--description: cannot read {given[1:]}: {error}") from None
    text = clean_text(text).strip()
    if not text:
        raise ConfigError("--description is empty; say in a few sentences what the corpus is about")
    return text


def coverage(
    options: EvalOptions,
    index: IndexOption,
    questions: QuestionsOption,
    modes: ModesOption = "hirag",
    variant: VariantOption = None,
    limit: LimitOption = None,
    question_field: QuestionFieldOption = None,
) -> None:
    """Measure how far the bridge covers the local and global levels."""
    loaded = options.load()
    asked = read_questions(questions, QuestionFields(question=question_field), limit)
    work = partial(evaluate_coverage, questions=asked, modes=comma_list(modes))
    evaluate(options.session("coverage", index, variant), loaded, work, options.json)


eval = typer.Typer(  # noqa: A001 (the command)
    help="Evaluate on your own questions: resumable, through pool and ledger, with a report.", no_args_is_help=True
)
for kind in (retrieval, qa, judge, claims, questions, coverage):
    eval.command(kind.__name__)(flattened(kind))
