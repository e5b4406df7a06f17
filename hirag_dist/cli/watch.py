"""`hirag-dist watch`: an index that follows a folder or an object-store prefix."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated

import typer

from hirag_dist.application.build import BuildOptions
from hirag_dist.application.index_result import IndexResult
from hirag_dist.application.watch import make_watch
from hirag_dist.cli._bill import update_lines
from hirag_dist.cli._options import ExecutorOptions, FieldOptions, IndexOption, InputsArgument, MaxUsdOption
from hirag_dist.cli._output import emit, err, out, seconds
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, HiragError
from hirag_dist.service.metrics_server import WatchMetrics, serve_metrics

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
