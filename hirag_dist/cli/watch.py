"""`hirag-dist watch`: an index that follows a folder or an object-store prefix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Annotated

import typer

from hirag_dist.application.index_result import IndexResult
from hirag_dist.application.watch import WatchEvent, debt_tokens, make_watch
from hirag_dist.cli._options import ExecutorOptions, FieldOptions, IndexOption, InputsArgument
from hirag_dist.cli._output import emit, err, out, seconds, short
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.llm.usage import dollars
from hirag_dist.service.metrics_server import WatchMetrics, serve_metrics


def watch(
    inputs: InputsArgument,
    index: IndexOption,
    fields: FieldOptions,
    options: ExecutorOptions,
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between two listings of INPUT: 30s, 10m, 1h.")
    ] = "60s",
    max_usd: Annotated[
        float | None, typer.Option(min=0, help="Dollars a day (UTC); when they are spent, changes wait for the next.")
    ] = None,
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
    loaded = options.load(fields.keys)
    every_s, counted = seconds(every, "--every"), WatchMetrics()
    followed = make_watch(inputs, index, loaded, max_usd, emit_event if options.json else show_event, counted)
    served = nullcontext() if metrics is None else serve_metrics(metrics, counted.registry, lambda: True)
    with _ended_by_signals(), served as address:
        if address is not None:
            err.print(f"Metrics: http://{address}/metrics")
        followed.run(every_s)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End the block without an error at Ctrl-C and at SIGTERM."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("The watch has ended; an interrupted update is continued by the next start.")


def emit_event(event: WatchEvent) -> None:
    """Print an event as a JSON object on a line."""
    said = {"at": _now(), "event": event.kind, "files": event.n_files, "age_seconds": round(event.age_s, 3)}
    if event.message:
        said["message"] = event.message
    if event.result is not None:
        report = event.result.to_dict()
        names = ("snapshot", "changed", "complete", "dead_letters", "seconds", "update", "rebuilt_because", "this_run")
        said |= {name: report[name] for name in names} | {"documents": report["counts"]["documents"]}
        said["debt_tokens"] = debt_tokens(event.result)
    emit(said)


def show_event(event: WatchEvent) -> None:
    """Print an event as a line."""
    said = event.message if event.result is None else result_line(event.result)
    out.print(f"{_now()} {event.kind}: {said}", markup=False)


def result_line(result: IndexResult) -> str:
    """Return the outcome of an update in one line."""
    total = count_noun(result.manifest.counts["documents"], "document")
    if result.up_to_date:
        return f"{total}, snapshot {result.snapshot_id}; no document changed"
    parts = [f"{total}, snapshot {result.snapshot_id}"]
    if result.update is None:
        parts.append("built from nothing" + (f" ({result.rebuilt_because})" if result.rebuilt_because else ""))
    else:
        documents = result.update.documents
        parts.append(f"{documents.added:,} added, {documents.changed:,} changed, {documents.removed:,} removed")
        if others := result.update.other_changes:
            parts.append(f"{' and '.join(others)} changed")
    sent = result.to_dict()["this_run"]
    parts.append(f"{short(sent['tokens'])} tokens, {dollars(sent['usd'])}")
    parts.append(f"debt {short(debt_tokens(result))} tokens")
    if not result.complete:
        parts.append(f"{count_noun(result.dead_letters, 'dead letter')}, see `hirag-dist status`")
    return f"{'; '.join(parts)}; {result.seconds:.1f} s"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
