"""One run of a kind of `hirag-dist eval`, from the session to the report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import typer

from hirag_dist.cli._bill import bill_table, sent_line
from hirag_dist.cli._output import emit, out
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.cli._section_table import show_section
from hirag_dist.config.model import Config
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.evaluation import Findings, Session, SessionOptions, open_session, write_report
from hirag_dist.llm.prompt_files import load_prompts

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
    with ProgressBars(bars, phases=()) as shown:
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
        show_section(each)
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
