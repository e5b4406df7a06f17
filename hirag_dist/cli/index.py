"""`hirag-dist plan`, `index`, `add`, `refresh`, `retry` and `watch`: estimate, build, update or repair an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.markup import escape

from hirag_dist.api.build import (
    add_documents,
    build_index,
    plan_build,
    plan_reembedding,
    reembed_index,
    refresh_index,
    run_with,
)
from hirag_dist.application.build import BuildOptions
from hirag_dist.application.index_result import IndexResult
from hirag_dist.application.retry import LetterSelection, run_drop, run_retry
from hirag_dist.cli._bill import reembedding_line, update_lines
from hirag_dist.cli._build import conclude, unwritten_line
from hirag_dist.cli._options import (
    ConfigOptions,
    ExecutorOptions,
    FieldOptions,
    FreshOption,
    IndexOption,
    InputsArgument,
    MaxUsdOption,
    OptionalIndexOption,
    OptionalInputsArgument,
    ReembedOption,
    WriteOptions,
    by_option,
    refuse_idle,
    required_inputs,
)
from hirag_dist.cli._output import about, duration_text, emit, err, out, seconds, short, table
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.composition.models import lexical_embedding_notice
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, HiragError
from hirag_dist.execution.build_progress import PHASES
from hirag_dist.indexing.estimate import FIRST_TOKEN_S, S_PER_TOKEN, CostEstimate, StageEstimate
from hirag_dist.llm.usage import dollars, total_cost
from hirag_dist.storage.store import Store

_SHOWN = 20  # files that cannot be read


def plan(
    fields: FieldOptions,
    options: ConfigOptions,
    inputs: OptionalInputsArgument = None,
    tokens_per_s: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Tokens per second of an endpoint's replies, all calls together; default: as the index was built.",
        ),
    ] = None,
    index: OptionalIndexOption = None,
    add: Annotated[
        bool, typer.Option("--add", help="With --index: estimate `add`; the documents of the index stay.")
    ] = False,
    reembed: ReembedOption = False,
) -> None:
    """Estimate calls, tokens, cost and time of an index; with --index, of the update of that index to INPUT.

    No model is called.

    Servers are asked for the context windows of their models, to which chunks and prompts are cut.

    With --index, documents that would be added, changed and removed, and the chunks to extract, are exact; summaries
    and reports are estimated from averages of the index. With --index and --reembed, without INPUT, the new vectors of
    `index --reembed` are estimated.
    """
    if add and index is None:
        raise ConfigError("--add estimates an addition to an index: give --index URI with it")
    if reembed and index is None:
        raise ConfigError("--reembed estimates new vectors of an index: give --index URI with it")
    documents = required_inputs(inputs, reembed)
    loaded = options.load(fields.keys)
    if notice := lexical_embedding_notice(loaded):
        err.print(f"[yellow]Note:[/yellow] {notice}.")
    if reembed and index is not None:
        refuse_idle({"--add": add} | by_option(fields), "--reembed", "the documents stay as they are")
        vectors = plan_reembedding(index, config=loaded)
        if options.json:
            emit(asdict(vectors) | {"cost_usd": vectors.cost_usd})
        else:
            out.print(reembedding_line(vectors))
        return
    made = plan_build(documents, index, config=loaded, tokens_per_s=tokens_per_s, add=add)
    if options.json:
        emit(asdict(made))
    else:
        _show(made, add)


def _show(made: CostEstimate, add: bool) -> None:
    chunks, tokens = count_noun(made.chunks, "chunk"), count_noun(made.tokens, "token")
    documents = count_noun(made.documents, "document")
    if made.rebuilt_because:
        refused = "cannot be updated, and `add` refuses" if add else "would be built from nothing, not updated"
        out.print(f"[yellow]The index {refused}:[/yellow]", end=" ")
        out.print(f"{made.rebuilt_because}.", markup=False)
    if made.metadata_fields:
        out.print("[yellow]The declared metadata fields are not those of the index:[/yellow]", end=" ")
        fields = [f"{word}: {', '.join(names)}" for word, names in made.metadata_fields.items()]
        stay = " Give a --config that declares those that should stay." if "gone" in made.metadata_fields else ""
        out.print(f"{'; '.join(fields)}.{stay}", markup=False)
    if made.base and not made.changes:
        same = f"the documents of INPUT are {'in' if add else 'those of'} snapshot {made.base}"
        new = f"No text changed: {same}. Their metadata changes, and a new snapshot is published."
        paid = f"Nothing to pay: {same}. Other paths, titles, ids or values of metadata are published without a call."
        out.print(new if made.metadata_fields else paid)
    elif made.base:
        counts = made.changes
        out.print(
            f"{counts.added:,} added, {counts.changed:,} changed, {counts.removed:,} removed; the index then has "
            f"{documents}. {chunks} to extract, {tokens}."
        )
        if made.descriptions.due:
            fewest, most = made.descriptions.due_range
            out.print(
                f"Descriptions of entities that many chunks name: about {made.descriptions.due:,} due ({fewest:,} to "
                f"{most:,}, by what the texts name); about {made.descriptions.written:,} are written."
            )
        for name, text in (("Summaries", made.summaries), ("Reports", made.reports)):
            fewest, most = text.due_range
            out.print(
                f"{name}: about {text.due:,} of {text.total:,} due ({fewest:,} to {most:,}, by what the texts name); "
                f"about {text.written:,} are written."
            )
        bound = "none for the built-in model" if made.budget_tokens is None else f"{made.budget_tokens:,} tokens"
        out.print(
            f"Bound: {bound}; the extraction of the documents that come, change or go is about "
            f"{made.extraction_tokens:,} tokens."
        )
    else:
        copies = count_noun(made.duplicates, "copy", "copies")
        out.print(f"{documents} ({copies} left out, {len(made.unreadable):,} unreadable), {chunks}, {tokens}.")
    for name, reason in made.unreadable[:_SHOWN]:  # a name or reason may hold brackets: `hirag-dist[documents]`
        out.print(f"  [yellow]cannot read[/yellow] {escape(name)}: {escape(reason)}")
    if not made.stages:
        return
    if line := _window_line(made):
        out.print(line)
    rows = [*map(stage_row, made.stages), total_row("total", made.stages, made.seconds)]
    out.print(estimate_table(rows))
    times = "No time is estimated for built-in models."
    if _is_timed(made.stages):
        times = (
            "Times are estimates, not bounds. A call at an endpoint of unknown speed is assumed to take "
            f"{FIRST_TOKEN_S:g} s and 1 s more for {1 / S_PER_TOKEN:g} tokens; --tokens-per-s sets the speed."
        )
    out.print(
        f"[dim]{times} Replies that an index already holds in its ledger are not known here and cost nothing "
        "again.[/dim]"
    )


def _is_timed(stages: Iterable[StageEstimate]) -> bool:
    """Return whether a time is estimated for one of the stages: for calls to built-in models none is."""
    return any(stage.bound for stage in stages)


def _window_line(made: CostEstimate) -> str:
    """Return a line about the windows and the speed that the estimate rests on; "" where neither is known."""
    windows = [f"{window:,} tokens ({role})" for role, window in made.windows.items()]
    if len(set(made.windows.values())) == 1:
        windows = [f"{next(iter(made.windows.values())):,} tokens"]
    known = [f"window {', '.join(windows)}"] if windows else []
    timed = {stage.endpoint for stage in made.stages if stage.bound}
    speeds = [
        f"endpoint {name} with about {short(made.speeds[name])} tokens a second"
        for name in made.speeds
        if name in timed
    ]
    known += speeds
    if not known:
        return ""
    work = "the update takes" if made.base else count_noun(made.documents, "document takes", "documents take")
    time = f"{work} {about(made.seconds)}"
    line = ", ".join(known) + (f": {time}." if speeds else ".")
    return line[0].upper() + line[1:]


def estimate_table(rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return the table of an estimate, of rows by `stage_row` and `total_row`."""
    columns = ["stage", "endpoint", "calls", "in", "out", "cost", "time", "bound by"]
    title = "Estimate (about a factor of two either way)"
    return table(title, columns, rows, right=(2, 3, 4, 5, 6), spare=(7, 1))


def stage_row(stage: StageEstimate) -> tuple[Any, ...]:
    """Return a stage as a row of the table of an estimate."""
    counts = (stage.calls, stage.input_tokens, stage.output_tokens)
    time = duration_text(stage.seconds) if stage.bound else None
    bound = stage.bound or ("built in" if stage.calls else "")
    return (stage.stage, stage.endpoint, *counts, dollars(stage.cost_usd), time, bound)


def total_row(name: str, stages: Sequence[StageEstimate], seconds: float) -> tuple[Any, ...]:
    """Return the sums of stages as a row of the table of an estimate."""
    total = [sum(getattr(stage, column) for stage in stages) for column in ("calls", "input_tokens", "output_tokens")]
    time = duration_text(seconds) if _is_timed(stages) else None
    return (name, "", *total, dollars(total_cost(stage.cost_usd for stage in stages)), time, "")


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
    reembed: ReembedOption = False,
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
        refuse_idle(by_option(fields), "--reembed", "no document is read")
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
    """Write the descriptions, summaries and reports that updates have put off, and publish a new snapshot.

    `status` shows how many are due. With --max-usd or --max-tokens, the oldest and most stale texts that fit are
    written, and the rest stays due; a new text may make others above it due. --max-usd uses the price of the replies
    of the last build. No document changes.
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
        if line := unwritten_line(report):
            lines.append(line)
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
