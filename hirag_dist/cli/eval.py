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
from hirag_dist.composition.build_records import earlier_builds, last_build
from hirag_dist.core.prompts.evaluation_templates import CRITERIA
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation import Findings, QuestionFields, Session, read_questions
from hirag_dist.evaluation.kinds.claims import count_claims, recount_claims
from hirag_dist.evaluation.kinds.coverage import evaluate_coverage
from hirag_dist.evaluation.kinds.judge import ROLE, JudgingOptions, criteria_of, judge_answers, recount, require_llm
from hirag_dist.evaluation.kinds.qa import evaluate_answers, score_recorded
from hirag_dist.evaluation.kinds.qa_scores import ScoringRules
from hirag_dist.evaluation.kinds.questions import GenerationOptions, describe_corpus, make_questions, question_findings
from hirag_dist.evaluation.kinds.retrieval import evaluate_retrieval
from hirag_dist.evaluation.metrics.exact_match_f1 import DEFINITIONS, REFUSALS
from hirag_dist.readers import clean_text
from hirag_dist.storage.store import Store


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
    require_llm("questions", {ROLE: loaded.llm.roles.judge}, loaded)
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
    """Measure how far the bridge covers the local and global levels, and the layers, graph and cost of an index."""
    loaded = options.load()
    asked = read_questions(questions, QuestionFields(question=question_field), limit)

    async def work(session: Session) -> Findings:
        assert session.snapshot is not None
        seconds = build_seconds(Store(index), session.snapshot.manifest.snapshot_id)
        return await evaluate_coverage(session, asked, comma_list(modes), seconds)

    evaluate(options.session("coverage", index, variant), loaded, work, options.json)


def build_seconds(store: Store, snapshot_id: str) -> float | None:
    """Return how long the stages of the build took that published a snapshot, None where no record of it is left.

    Stages that an earlier build had done are in none of its seconds: of a build that was interrupted and of one that
    found finished stages it is the part of the last.
    """
    for record in (last_build(store), *earlier_builds(store)):
        if record is not None and record.get("snapshot") == snapshot_id:
            return float(sum(stage["seconds"] for stage in record["stages"]))
    return None


eval = typer.Typer(  # noqa: A001 (the command)
    help="Evaluate on your own questions: resumable, through pool and ledger, with a report.", no_args_is_help=True
)
for kind in (retrieval, qa, judge, claims, questions, coverage):
    eval.command(kind.__name__)(flattened(kind))
