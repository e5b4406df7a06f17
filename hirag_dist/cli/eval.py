"""`hirag-dist eval KIND`: evaluations on the user's own questions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hirag_dist.cli._bill import bill_table, sent_line
from hirag_dist.cli._command_line import flattened
from hirag_dist.cli._options import (
    ConfigOptions,
    FreshOption,
    IndexOption,
    MaxTokensOption,
    MaxUsdOption,
    OptionalIndexOption,
    SnapshotOption,
    configuration,
)
from hirag_dist.cli._output import emit, out
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.cli.inspect import show_section
from hirag_dist.config.model import Config, RetrievalConfig
from hirag_dist.core.prompts.templates import CRITERIA
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation.answer_collections import answer_sources
from hirag_dist.evaluation.kinds.claims import count_claims
from hirag_dist.evaluation.kinds.coverage import evaluate_coverage
from hirag_dist.evaluation.kinds.judge import AnswerMaterial, JudgingOptions, criteria_of, judge_answers, require_llm
from hirag_dist.evaluation.kinds.qa import DEFINITIONS, REFUSALS, ScoringRules, evaluate_answers, score_recorded
from hirag_dist.evaluation.kinds.questions import GenerationOptions, describe_corpus, make_questions
from hirag_dist.evaluation.kinds.retrieval import evaluate_retrieval
from hirag_dist.evaluation.questions import QuestionFields, Questions, read_questions
from hirag_dist.evaluation.report import write_report
from hirag_dist.evaluation.session import Session, SessionOptions, open_session
from hirag_dist.evaluation.work_units import Findings
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.readers import clean_text

OutOption = Annotated[
    str, typer.Option("--out", "-o", metavar="DIR", help="Folder of the evaluation; run again with it to go on.")
]
_QUESTIONS = typer.Option(
    "--questions", "-q", metavar="FILE", help="JSONL, JSON, CSV or Parquet with a question a record."
)
QuestionsOption = Annotated[str, _QUESTIONS]
_MODES = typer.Option("--modes", metavar="MODE,…", help="Retrieval modes to compare, by commas.")
ModesOption = Annotated[str, _MODES]
_ANSWERS = "File of recorded answers to evaluate."
_RETRIEVAL_MODES = "hirag, local, global, bridge, nobridge, naive, flat"
VariantOption = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="NAME:KEY=VALUE,…",
        help="Compare other settings of retrieval too, such as wide:top_n=40. Several: one option each.",
    ),
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="The first so many questions only.")]
QuestionFieldOption = Annotated[str | None, typer.Option(help="Field with the question.")]
IdFieldOption = Annotated[str | None, typer.Option("--question-id-field", help="Field with the question's id.")]
TypeFieldOption = Annotated[
    str | None, typer.Option(help="Field with the question's type; results are shown by type too.")
]


@dataclass(frozen=True, kw_only=True)
class EvalOptions(ConfigOptions):
    """Options of every kind, as they were given."""

    out: OutOption
    snapshot: SnapshotOption = None
    max_usd: MaxUsdOption = None
    max_tokens: MaxTokensOption = None
    fresh: FreshOption = False

    def session(self, kind: str, index: str | None, variants: list[str] | None = None) -> SessionOptions:
        """Return the options of a run of a kind."""
        return SessionOptions(
            kind, self.out, index, self.snapshot, self.variants(variants), self.max_usd, self.max_tokens, self.fresh
        )

    def variants(self, given: list[str] | None) -> dict[str, RetrievalConfig]:
        """Return the values of --variant: name → settings of retrieval.

        Raises:
            ConfigError: no NAME:KEY=VALUE, a name given twice, an unknown key of retrieval, a value out of bounds.
        """
        variants: dict[str, RetrievalConfig] = {}
        for text in given or []:
            name, colon, pairs = text.partition(":")
            name = name.strip()
            changes = [pair.strip() for pair in pairs.split(",") if pair.strip()]
            if not colon or not name or not changes or not all("=" in change for change in changes):
                raise ConfigError(f"--variant takes NAME:KEY=VALUE,…, not {text!r}")
            if name in variants:
                raise ConfigError(f"--variant {name} is given twice")
            own = [f"retrieval.{change.removeprefix('retrieval.')}" for change in changes]
            self.load()  # an error in these settings is not the variant's
            try:
                variants[name] = configuration(self.config, [*(self.settings or []), *own]).config.retrieval
            except ConfigError as error:
                raise ConfigError(f"--variant {name}: {error}") from None
        return variants


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(EvalOptions):
    """Options of the kinds in which a model judges answers."""

    answers: Annotated[list[str] | None, typer.Option("--answers", "-a", metavar="[NAME=]FILE", help=_ANSWERS)] = None
    questions: Annotated[str | None, _QUESTIONS] = None
    index: OptionalIndexOption = None
    modes: Annotated[str | None, _MODES] = None
    variant: VariantOption = None
    question_field: QuestionFieldOption = None
    question_id_field: IdFieldOption = None
    limit: LimitOption = None

    def material(self, purpose: str) -> AnswerMaterial:
        """Return the answers that the options name, or whose making they order.

        Raises:
            ConfigError: no answers, an index without modes or questions, or these without an index.
            InputError: the question file cannot be read.
        """
        if self.index is not None and (self.modes is None or self.questions is None):
            raise ConfigError("--index answers questions: give --questions FILE and --modes, as in --modes hirag,naive")
        if self.index is None and self.modes is not None:
            raise ConfigError("--modes are modes of an index: name it with --index URI")
        if self.limit is not None and self.questions is None:
            raise ConfigError("--limit is of the questions of a file: give it with --questions")
        fields = QuestionFields(self.question_field, self.question_id_field)
        asked = Questions(()) if self.questions is None else read_questions(self.questions, fields, self.limit)
        sources = tuple(answer_sources(self.answers or []))
        if not sources and self.index is None:
            raise ConfigError(f"give answers to {purpose}: --answers FILE, or --index URI with --modes and --questions")
        return AnswerMaterial(sources, asked, tuple(comma_list(self.modes or "")))


def comma_list(text: str) -> list[str]:
    """Return the items of an option's value, each once.

    >>> comma_list("hirag, naive,hirag")
    ['hirag', 'naive']
    """
    return list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


_ONE = {  # of what is counted of a question file, where that is a thing
    "questions": "question",
    "copies": "copy",
    "ids_used_twice": "id used twice",
    "texts_used_twice": "text used twice",
}


def evaluate(
    order: SessionOptions, config: Config, work: Callable[[Session], Awaitable[Findings]], json: bool, title: str = ""
) -> None:
    """Run an evaluation and print its outcome; exit with 3 where there are dead letters.

    Args:
        work: the kind: does its steps (`Session.map`) and gives what it found.
        json: print the report, as in `report.json`, instead of tables.
        title: of what is printed; empty for the name of the kind.
    """

    async def run() -> tuple[dict[str, Any], Findings]:
        started = time.perf_counter()
        prompts = load_prompts(config.prompts)
        with ProgressBars(not json, phases=()) as shown:
            async with open_session(order, config, prompts, (shown,)) as session:
                findings = await work(session)
                return await write_report(session, findings, time.perf_counter() - started), findings

    report, findings = asyncio.run(run())
    if json:
        emit(report | {"out": order.out})
    else:
        _show(order, report, findings, title)
    if not report["complete"]:
        raise typer.Exit(3)


def _show(order: SessionOptions, report: Mapping[str, Any], findings: Findings, title: str) -> None:
    found = {name: n for name, n in report["questions"].items() if n}
    counts = [
        count_noun(n, _ONE.get(name, name).replace("_", " "), name.replace("_", " ")) for name, n in found.items()
    ]
    if counts:
        out.print(f"{title or order.kind}: {', '.join(counts)}.", markup=False)
    for each in findings.headline:
        show_section(each)
    if report["usage"]:
        out.print(bill_table([{"stage": row["step"]} | row for row in report["usage"]]))
    units = report["units"]
    out.print(
        f"{count_noun(units['new'], 'unit')} done in {report['seconds']:.1f} s, {units['from_before']:,} from before; "
        f"this run {sent_line(report['this_run'])}."
    )
    letters = report["dead_letters"]
    if letters["count"]:
        first = letters["shown"][0]
        out.print(
            f"[yellow]Incomplete: {count_noun(letters['count'], 'dead letter')}.[/yellow] No figure counts what "
            "has one; the next run tries again."
        )
        out.print(f"The first, {first['step']} {first['id']}: {first['reason']}", markup=False)
    out.print(f"Wrote {order.out}/report.html and {order.out}/report.json.", markup=False)


def retrieval(
    options: EvalOptions,
    index: IndexOption,
    questions: QuestionsOption,
    modes: ModesOption = _RETRIEVAL_MODES,
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
    try:
        ks = [int(item) for item in comma_list(k)]
    except ValueError:
        raise ConfigError(f"--k takes whole numbers by commas, not {k!r}") from None
    work = partial(evaluate_retrieval, questions=asked, modes=comma_list(modes), ks=ks)
    evaluate(options.session("retrieval", index, variant), loaded, work, options.json, "Retrieval")


def qa(
    options: EvalOptions,
    questions: QuestionsOption,
    index: OptionalIndexOption = None,
    modes: ModesOption = "hirag,naive",
    answers: Annotated[str | None, typer.Option(metavar="FILE", help=_ANSWERS)] = None,
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
    """Score short answers by exact match and F1, with intervals, paired differences and costs.

    An index answers (--index), or the answers are recorded (--answers).
    """
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
    criteria: Annotated[
        str, typer.Option(metavar="NAME,…", show_default=", ".join(CRITERIA), help="What is judged, by commas.")
    ] = ",".join(CRITERIA),
    against: Annotated[
        str | None, typer.Option(metavar="METHOD", help="Compare all with this one, not each with each.")
    ] = None,
) -> None:
    """Compare answers two by two, in both orders: win rates, and how far the position of an answer decides.

    An index answers in each mode of --modes, or the answers are recorded: --answers may be repeated, or both be given.
    """
    loaded = options.load()
    material = options.material("compare")
    judging = JudgingOptions(criteria_of(criteria), replicates, against)
    require_llm("judge", loaded)
    work = partial(judge_answers, material=material, judging=judging)
    evaluate(options.session("judge", options.index, options.variant), loaded, work, options.json)


def claims(options: AnswerOptions) -> None:
    """Count the factual claims of answers, and the clusters that they make.

    An index answers in each mode of --modes, or the answers are recorded: --answers may be repeated, or both be given.
    """
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
    per_task: Annotated[int, typer.Option(min=1, max=100, help="Questions of each task.")] = 5,
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
        return await make_questions(session, about, wanted)

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
