"""`hirag-dist index`, `add`, `refresh`, `retry` and `watch`: build, update or repair an index and publish it."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated

import typer

from hirag_dist.api.build import add_documents, build_index, plan_reembedding, reembed_index, refresh_index, run_with
from hirag_dist.application.build import BuildOptions
from hirag_dist.application.index_result import IndexResult
from hirag_dist.application.retry import LetterSelection, run_drop, run_retry
from hirag_dist.cli._bill import reembedding_line, update_lines
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import (
    ExecutorOptions,
    FieldOptions,
    FreshOption,
    IndexOption,
    InputsArgument,
    MaxUsdOption,
    OptionalInputsArgument,
    WriteOptions,
    refuse_idle,
    required_inputs,
)
from hirag_dist.cli._output import emit, err, out, seconds
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, HiragError
from hirag_dist.execution.build_progress import PHASES
from hirag_dist.storage.store import Store


def index(
    index: IndexOption,
    fields: FieldOptions,
    options: WriteOptions,
    inputs: OptionalInputsArgument = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Build an index that exists from nothing; stored replies are not paid again."),
    ] = False,
    fresh: FreshOption = False,
    reembed: Annotated[
        bool,
        typer.Option("--reembed", help="Make new vectors with the configured embedder and keep everything else."),
    ] = False,
) -> None:
    """Build an index of INPUT and publish it; after an interruption, the same command continues.

    An index that exists is updated: the documents of INPUT are compared by content with those of the index; new and
    changed ones are extracted, those that are gone from INPUT are removed, and only what they reach is made again.
    Entities, clusters, communities and reports that did not change keep their ids and texts. --rebuild makes all of
    them from nothing, and ids of clusters and communities may change. See also add, remove and refresh.

    --reembed, without INPUT, is for another embedder: it makes the vectors of all texts of the index with it, without
    a chat call, and keeps documents, entities, clusters, summaries, communities and reports.
    """
    documents = required_inputs(inputs, reembed)
    loaded = options.load(fields.keys)
    if reembed:
        refuse_idle({"--rebuild": rebuild, "--fresh": fresh}, "--reembed", "it makes nothing but vectors")
        refuse_idle(fields.given, "--reembed", "no document is read")
        if not options.json:
            err.print(reembedding_line(plan_reembedding(index, config=loaded)))
    with ProgressBars(not options.json, phases=() if reembed else PHASES) as bars:
        if reembed:
            result = reembed_index(index, config=loaded, progress=bars, **options.limits)
        else:
            result = build_index(
                documents, index, rebuild=rebuild, fresh=fresh, config=loaded, progress=bars, **options.limits
            )
    conclude(result, options.json)


def add(inputs: InputsArgument, index: IndexOption, fields: FieldOptions, options: WriteOptions) -> None:
    """Add the documents of INPUT to an index and publish it; the documents that it has stay.

    A document of the same path and record as one of the index, with another text, replaces it. The path is relative to
    the INPUT argument that it was found below: give the folder that `index` was given, or one laid out like it.
    """
    loaded = options.load(fields.keys)
    with ProgressBars(not options.json) as bars:
        result = add_documents(inputs, index, config=loaded, progress=bars, **options.limits)
    conclude(result, options.json)


def refresh(
    index: IndexOption,
    options: WriteOptions,
    all_reports: Annotated[
        bool, typer.Option("--reports", help="Write the reports too that communities.report_share leaves out.")
    ] = False,
) -> None:
    """Write the summaries and reports that updates have put off, and publish a new snapshot.

    `status` shows how many are due. With --max-usd or --max-tokens, the oldest and most stale texts that fit are
    written, and the rest stays due. --max-usd uses the price of the replies of the last build. No document changes.
    """
    loaded = options.load()
    with ProgressBars(not options.json) as bars:
        result = refresh_index(index, all_reports=all_reports, config=loaded, progress=bars, **options.limits)
    conclude(result, options.json)


def retry(
    index: IndexOption,
    options: WriteOptions,
    drop: Annotated[bool, typer.Option("--drop", help="Accept the loss instead; no model is asked.")] = False,
    stage: Annotated[str | None, typer.Option(help="With --drop: only letters of this stage.")] = None,
    unit: Annotated[list[str] | None, typer.Option(help="With --drop: only this unit; may be repeated.")] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="With --drop: why, for the record.")] = "",
) -> None:
    """Ask again about the dead letters of the last build, go on with it, and publish a new snapshot.

    It reads the INPUT of that build and wants its configuration: give the same --config and --set. Replies that were
    good are not paid again. With --drop the loss is accepted: such letters count no longer, and are not asked again.
    """
    if not drop and (stage or unit or reason):
        raise ConfigError("--stage, --unit and --reason say what is dropped: give --drop with them")
    if drop:
        _drop(index, LetterSelection(stage, tuple(unit or ()), reason), options.wait, options.json)
        return
    loaded = options.load()
    with ProgressBars(not options.json) as bars:
        result = run_with(
            {"config": loaded, "progress": bars, **options.limits},  # type: ignore[typeddict-item]
            lambda config, build, listeners: run_retry(index, config, build, listeners),
        )
    conclude(result, options.json)


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


_MIN_EVERY_S = 0.1


def watch(
    inputs: InputsArgument,
    index: IndexOption,
    fields: FieldOptions,
    options: ExecutorOptions,
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between two listings of INPUT: 30s, 10m, 1h.")
    ] = "60s",
    max_usd: MaxUsdOption = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics on /metrics.")
    ] = None,
) -> None:
    """Follow INPUT and update the index as files are added, changed and removed.

    Each update is `hirag-dist index INPUT`: documents that are gone from INPUT are removed from the index. The first
    round compares all of INPUT with the index, so the command can be stopped or killed at any moment and started again.
    A later change is applied by the round after the one that finds it, as files may still be copied.
    A round that fails (an endpoint or a folder out of reach) is tried again later. Ctrl-C and SIGTERM end the command;
    an interrupted update is continued by the next start. With --json each round is one JSON object on a line.
    """
    from hirag_dist.application.watch import make_watch
    from hirag_dist.service.metrics_server import WatchMetrics, serve_metrics

    every_s, counted = seconds(every, "--every"), WatchMetrics()
    if every_s < _MIN_EVERY_S:
        raise ConfigError(f"Invalid --every: {every}; expected at least {_MIN_EVERY_S}s")

    def notify(outcome: IndexResult | HiragError) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        if isinstance(outcome, HiragError):
            said = f"{outcome}; it is tried again"
            emit({"at": at, "error": said}) if options.json else out.print(f"{at} failed: {said}", markup=False)
            return
        report = outcome.to_dict()
        if options.json:
            emit({"at": at} | report)
            return
        lines = [f"{at} snapshot {outcome.snapshot_id}, {count_noun(report['counts']['documents'], 'document')}."]
        if outcome.up_to_date:
            lines.append("No document changed.")
        elif report["update"] is not None:
            lines += update_lines(report["update"])
        elif outcome.rebuilt_because:
            lines.append(f"Built from nothing: {outcome.rebuilt_because}.")
        if not outcome.complete:
            lines.append(f"{count_noun(outcome.dead_letters, 'dead letter')}, see `hirag-dist status`.")
        out.print(" ".join(lines), markup=False)

    followed = make_watch(inputs, index, options.load(fields.keys), BuildOptions(max_usd=max_usd), notify, counted)
    served = nullcontext() if metrics is None else serve_metrics(metrics, counted.registry, lambda: True)
    try:
        with served as address:
            if address is not None:
                err.print(f"Metrics: http://{address}/metrics")
            followed.run(every_s)
    except KeyboardInterrupt:
        err.print("The watch has ended; an interrupted update is continued by the next start.")
