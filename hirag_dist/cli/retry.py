"""`hirag-dist retry`: dead letters asked again, or given up by decision; then a new snapshot."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hirag_dist.api.build import run_with
from hirag_dist.application.retry import LetterSelection, estimate_retry, run_drop, run_retry
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import IndexOption, WriteOptions
from hirag_dist.cli._output import emit, err, out
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.cli.plan import estimate_table, stage_row, total_row
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError
from hirag_dist.indexing.estimate import RetryEstimate
from hirag_dist.storage.store import Store


def retry(
    index: IndexOption,
    options: WriteOptions,
    drop: Annotated[bool, typer.Option("--drop", help="Accept the loss instead; no model is asked.")] = False,
    stage: Annotated[str | None, typer.Option(help="With --drop: only letters of this stage.")] = None,
    unit: Annotated[list[str] | None, typer.Option(help="With --drop: only this unit; may be repeated.")] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="With --drop: why, for the record.")] = "",
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what it would call and cost, at least and at most; make no call.")
    ] = False,
) -> None:
    """Ask again about the dead letters of the last build, go on with it, and publish a new snapshot.

    It reads the INPUT of that build and wants its configuration: give the same --config and --set. Replies that were
    good are not paid again. With --drop the loss is accepted: such letters count no longer, and are not asked again.
    """
    if drop and plan:
        raise ConfigError("--drop asks no model: there is nothing to plan")
    if not drop and (stage or unit or reason):
        raise ConfigError("--stage, --unit and --reason say what is dropped: give --drop with them")
    if drop:
        _drop(index, LetterSelection(stage, tuple(unit or ()), reason), options.wait, options.json)
        return
    loaded = options.load()
    if plan:
        _plan(estimate_retry(index, loaded), options.json)
        return
    with ProgressBars(not options.json) as bars:
        result = run_with(
            {"config": loaded, "progress": bars, **options.limits},  # type: ignore[typeddict-item]
            lambda config, build, listeners: run_retry(index, config, build, listeners),
        )
    conclude(result, options.json)


def _plan(made: RetryEstimate, json: bool) -> None:
    if json:
        emit(asdict(made))
        return
    if not made.letters:
        out.print("There are no dead letters to ask again.")
    for name, count in made.letters.items():
        asked = "" if any(stage.stage == name for stage in made.stages) else ": read again, no model is asked"
        out.print(f"{name}: {count_noun(count, 'dead letter')}{asked}")
    if made.dropped:
        out.print(f"{count_noun(made.dropped, 'letter was', 'letters were')} dropped, and would not be asked again.")
    if made.stages:
        rows = [stage_row(stage) for stage in made.stages]
        rows.append(total_row("letters", made.stages, None))
        rows.append(total_row("about at most", (*made.stages, *made.later), made.seconds))
        out.print(estimate_table("Estimate of the retry", rows))
        out.print(
            "[dim]About at most: every call of the later stages again, as the last build made them. What new replies "
            "do not reach is found in the ledger and costs nothing again.[/dim]"
        )
    if not made.finished:
        out.print("The last build did not finish: a retry also makes the calls that were left, which are not in this.")


def _drop(index: str, selection: LetterSelection, wait_s: float, json: bool) -> None:
    dropped = run_drop(index, selection, wait_s)
    manifest = dropped.manifest
    report = {"index": Store(index).uri} | dropped.to_dict()
    if json:
        emit(report)
    else:
        out.print(f"Dropped {count_noun(len(dropped.letters), 'dead letter')}; {dropped.n_open:,} left.")
        if manifest is not None:
            is_live = dropped.current == manifest.snapshot_id
            served = "" if is_live else f" It is not served: `current` names {dropped.current}, which stays."
            out.print(
                f"Snapshot [bold]{manifest.snapshot_id}[/bold] {'published' if is_live else 'written'}: nothing else "
                f"in it has changed.{served}"
            )
    if manifest is None:
        err.print("The last build did not finish: run it again with `hirag-dist index`, or with `hirag-dist retry`.")
    elif not manifest.complete:
        raise typer.Exit(3)
