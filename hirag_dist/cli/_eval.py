"""What the kinds of `hirag-dist eval` share: their options, and one run from the session to the report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import typer

from hirag_dist.cli._bill import bill_table, sent_line
from hirag_dist.cli._options import configuration
from hirag_dist.cli._output import emit, out, table
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.config.model import Config, RetrievalConfig
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation import Findings, Session, SessionOptions, open_session, write_report
from hirag_dist.html import Table
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.types.statistics import Interval

OutOption = Annotated[
    str,
    typer.Option("--out", "-o", metavar="DIR", help="Folder of the evaluation; run again with it to go on."),
]
EvalIndexOption = Annotated[
    str | None, typer.Option("--index", "-i", metavar="URI", help="Index folder, or s3://… , that is asked.")
]
QuestionsOption = Annotated[
    str, typer.Option("--questions", "-q", metavar="FILE", help="JSONL, JSON, CSV or Parquet with a question a record.")
]
ModesOption = Annotated[str, typer.Option("--modes", metavar="MODE,…", help="Modes to compare, by commas.")]
VariantOption = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="NAME:KEY=VALUE,…",
        help="Compare other settings of retrieval too, as in wide:top_n=40,top_c=20. Several: one option each.",
    ),
]
FreshOption = Annotated[bool, typer.Option("--fresh", help="Do finished units again; paid replies are kept.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="The first so many questions only.")]
QuestionFieldOption = Annotated[str | None, typer.Option(help="Field with the question.")]
IdFieldOption = Annotated[str | None, typer.Option("--question-id-field", help="Field with the question's id.")]
TypeFieldOption = Annotated[str | None, typer.Option(help="Field with the question's type; results are told by type.")]
AnswerFieldOption = Annotated[str | None, typer.Option(help="Field with the gold answer, or answers.")]
GoldFieldOption = Annotated[str | None, typer.Option(help="Field with the ids of the records that hold the evidence.")]


_ONE = {  # of what is counted of a question file, where that is a thing
    "questions": "question",
    "copies": "copy",
    "ids_used_twice": "id used twice",
    "texts_used_twice": "text used twice",
}


def comma_list(text: str) -> list[str]:
    """Return the items of an option's value, each once.

    >>> comma_list("hirag, naive,hirag")
    ['hirag', 'naive']
    """
    return list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def read_variants(
    given: list[str] | None, config: str | None, settings: list[str] | None
) -> dict[str, RetrievalConfig]:
    """Return what --variant says: name → settings of retrieval.

    Raises:
        ConfigError: no NAME:KEY=VALUE, a name given twice, a key that retrieval has not, a value out of bounds.
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
        configuration(config, settings)  # what is wrong with these is no fault of the variant's
        try:
            variants[name] = configuration(config, [*(settings or []), *own]).config.retrieval
        except ConfigError as error:
            raise ConfigError(f"--variant {name}: {error}") from None
    return variants


def evaluate(
    order: SessionOptions, config: Config, work: Callable[[Session], Awaitable[Findings]], json: bool, title: str = ""
) -> None:
    """Run an evaluation and print its outcome; exit with 3 where there are dead letters.

    Args:
        work: the kind: does its steps (`Session.map`) and gives what it found.
        json: print the report, as in `report.json`, instead of tables.
        title: of what is printed; None for the kind's name.
    """
    report, findings = asyncio.run(_run(order, config, work, bars=not json))
    if json:
        emit(report | {"out": order.out})
    else:
        _show(order, report, findings, title)
    if not report["complete"]:
        raise typer.Exit(3)


async def _run(
    order: SessionOptions, config: Config, work: Callable[[Session], Awaitable[Findings]], bars: bool
) -> tuple[dict[str, Any], Findings]:
    started = time.perf_counter()
    prompts = load_prompts(config.prompts)
    with ProgressBars(bars) as shown:
        async with open_session(order, config, prompts, (shown,)) as session:
            findings = await work(session)
            report = await write_report(session, findings, time.perf_counter() - started)
    return report, findings


def _show(order: SessionOptions, report: Mapping[str, Any], findings: Findings, title: str) -> None:
    found = {name: n for name, n in report["questions"].items() if n}
    counts = [
        count_noun(n, _ONE.get(name, name).replace("_", " "), name.replace("_", " ")) for name, n in found.items()
    ]
    if counts:
        out.print(f"{title or order.kind}: {', '.join(counts)}.", markup=False)
    for each in findings.headline:
        out.print(_shown(each))
        if each.note:
            out.print(each.note, style="dim", markup=False)
    if report["usage"]:
        out.print(bill_table([{"stage": row["step"]} | row for row in report["usage"]]))
    units = report["units"]
    out.print(
        f"{count_noun(units['new'], 'unit')} done in {report['seconds']:.1f} s, {units['from_before']:,} from "
        "before; this "
        f"run {sent_line(report['this_run'])}."
    )
    letters = report["dead_letters"]
    if letters["count"]:
        first = letters["shown"][0]
        out.print(
            f"[yellow]Incomplete: {count_noun(letters['count'], 'dead letter')}.[/yellow] No figure counts what "
            "has one; "
            "the next run tries again."
        )
        out.print(f"The first, {first['step']} {first['id']}: {first['reason']}", markup=False)
    out.print(f"Wrote {order.out}/report.html and {order.out}/report.json.", markup=False)


def _shown(each: Table) -> Any:
    rows = [[_cell(cell, each.form) for cell in row] for row in each.rows]
    right = [
        place
        for place in range(len(each.columns))
        if rows and not any(isinstance(row[place], str) for row in each.rows)
    ]
    spare = [place for place in reversed(range(1, len(each.columns))) if place in right]
    return table(each.title, each.columns, rows, right=right, spare=spare)


def _cell(cell: Any, form: str) -> Any:
    if isinstance(cell, Interval):
        if cell.value != cell.value:
            return None
        rough = ".0%" if form.endswith("%") else form
        low, high = (format(each, rough) for each in (cell.low, cell.high))
        return f"{format(cell.value, form)} ({low} to {high})"
    if isinstance(cell, float):
        return format(cell, form) if cell == cell else None
    return cell
