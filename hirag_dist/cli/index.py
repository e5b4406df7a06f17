"""`hirag-dist index`: build and publish a snapshot."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from hirag_dist.cli.builds import BuildRecord, Given, sent_sums
from hirag_dist.cli.options import (
    BatchOption,
    ConfigOption,
    ExecutorOption,
    IndexOption,
    JsonOption,
    MaxTokensOption,
    MaxUsdOption,
    SetOption,
    WorkersOption,
    configuration,
)
from hirag_dist.cli.output import dollars, emit, out, table, use_json
from hirag_dist.cli.progress import Bars
from hirag_dist.config import Config
from hirag_dist.config_file import load_prompts
from hirag_dist.errors import StoreError
from hirag_dist.execution.run import Run
from hirag_dist.index.lock import BuildLock
from hirag_dist.index.reader import open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.pipeline import Build, BuildResult
from hirag_dist.pool.ledger import Ledger, compact
from hirag_dist.pool.metering import Meter, current_meter
from hirag_dist.wiring import make_batches, make_executor, resolve

log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("index")(index)


def index(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders, globs, s3://… .")],
    index: IndexOption,
    config: ConfigOption = None,
    settings: SetOption = None,
    executor: ExecutorOption = None,
    workers: WorkersOption = None,
    text_field: Annotated[str | None, typer.Option(help="Field of JSON, CSV and Parquet records that is read.")] = None,
    title_field: Annotated[str | None, typer.Option(help="Field with the title.")] = None,
    label_field: Annotated[str | None, typer.Option(help="Field with the labels.")] = None,
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    batch: BatchOption = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do finished stages again; paid replies are kept.")] = False,
    require_complete: Annotated[bool, typer.Option(help="Publish nothing while there are dead letters.")] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for another build of this index to end.")] = 0.0,
    json: JsonOption = False,
) -> None:
    """Build an index of INPUT and publish it. Run it again after any interruption: it goes on where it was."""
    use_json(json)
    loaded = configuration(
        config,
        settings,
        {
            "execution.executor": executor,
            "execution.workers": workers,
            "llm.batch": batch or None,
            "reading.text_field": text_field,
            "reading.title_field": title_field,
            "reading.label_field": label_field,
        },
    ).config
    started = time.perf_counter()
    store = Store(index)
    order = Order("index", Given.index(inputs, loaded), max_usd, max_tokens, fresh=fresh, wait_s=wait)
    result, sent = build(loaded, store, order, lambda made: made.index(inputs, require_complete), bars=not json)
    conclude(summary(store, result, sent, time.perf_counter() - started), json)


def conclude(report: dict[str, Any], json: bool) -> None:
    """Print a build's summary; exit with 3 where there are dead letters."""
    if json:
        emit(report)
    else:
        show(report)
    if not report["complete"]:
        raise typer.Exit(3)


@dataclass(frozen=True)
class Order:
    """What a run is to do besides its configuration.

    Attributes:
        action: the command, for the record: index, import or retry.
        given: what the build reads, for `retry`.
        max_usd, max_tokens: what this run may spend.
        fresh: do finished stages again.
        retry: ask again about dead letters.
        wait_s: wait so long for another build of the index to end.
    """

    action: str
    given: Given
    max_usd: float | None = None
    max_tokens: int | None = None
    fresh: bool = False
    retry: bool = False
    wait_s: float = 0.0


def build(
    config: Config,
    store: Store,
    order: Order,
    work: Callable[[Build], BuildResult],
    bars: bool = False,
    check: Callable[[Build], None] = lambda made: None,
) -> tuple[BuildResult, Meter]:
    """Run one build under the lock; return its result and what this run itself sent to models.

    Args:
        work: is given the build and says what to do with it.
        check: may refuse the build, before the record of the one before is put away.
    """
    prompts = load_prompts(config.prompts)
    store.check_writable()
    with BuildLock(store, order.wait_s) as lock, Bars(bars) as shown:
        tidy_ledger(store, lock)
        probes = Meter()
        token = current_meter.set(probes)
        resolved = resolve(config, Ledger(store))
        current_meter.reset(token)
        executor = make_executor(config, store, order.max_usd, order.max_tokens)
        batches = make_batches(config, store, order.max_usd, order.max_tokens, lock.fenced)
        try:
            run = Run(store, executor, (), config.max_reject_ratio, order.fresh, order.retry, lock.fenced, batches)
            made = Build(config, prompts, resolved, run)
            check(made)
            limits = {"max_usd": order.max_usd, "max_tokens": order.max_tokens}
            record = BuildRecord(store, order.action, order.given, config, made.decisive(), limits, fence=lock.fenced)
            run.listeners = (shown, record)
            run.spent("probes", probes)
            with record.closed():
                run.collect()
                result = work(made)
                record.close("done", snapshot=result.manifest.snapshot_id)
        finally:
            executor.close()
            batches.close()
    return result, run.sent


def tidy_ledger(store: Store, lock: BuildLock) -> None:
    """Compact the ledger where that is due; a build can do without."""
    try:
        compact(store, lock.check)
    except StoreError as error:
        log.warning("the ledger was not compacted: %s", error)


def summary(store: Store, result: BuildResult, sent: Meter, seconds: float) -> dict[str, Any]:
    """Return what a build did, as JSON."""
    snapshot = open_snapshot(store, result.manifest.snapshot_id)
    usage = snapshot.table("usage").to_pylist()
    return {
        "snapshot": result.manifest.snapshot_id,
        "changed": result.changed,
        "complete": result.manifest.complete,
        "stages_run": result.stages_run,
        "seconds": round(seconds, 2),
        "counts": dict(result.manifest.counts),
        "layers": snapshot.table("layers").to_pylist(),
        "communities_by_level": snapshot.info().communities_by_level,
        "usage": usage,
        "total_usd": sum(row["cost_usd"] for row in usage),
        "this_run": sent_sums(sent),
        "dead_letters": result.rejects,
        "dropped": result.dropped,
        "index": store.uri,
    }


def show(report: dict[str, Any]) -> None:
    """Print a build's summary for a person."""
    counts = report["counts"]
    if not report["stages_run"]:
        out.print(f"Nothing to do: snapshot {report['snapshot']} is up to date ({report['seconds']:.1f} s).")
    else:
        out.print(
            f"Snapshot [bold]{report['snapshot']}[/bold] {'published' if report['changed'] else 'is unchanged'} after "
            f"{report['seconds']:.1f} s: {counts['documents']:,} documents, {counts['chunks']:,} chunks, "
            f"{counts['entities']:,} entities, {counts['relations']:,} relations, {counts['reports']:,} reports."
        )
        out.print(layer_table(report["layers"]))
        levels = ", ".join(f"{n:,} at level {level}" for level, n in report["communities_by_level"].items())
        out.print(f"Communities: {levels}.")
        out.print(bill_table(report["usage"]))
    out.print(f"This run {sent_line(report['this_run'])}.")
    where = report["index"]
    if report["dropped"]:
        out.print(f"{report['dropped']} dead letters were dropped before; their loss is accepted.")
    if not report["complete"]:
        out.print(
            f"[yellow]Incomplete: {report['dead_letters']} units are dead letters.[/yellow] "
            f"`hirag-dist status --index {where} --letters` shows them, `hirag-dist retry --index {where}` asks again."
        )


def sent_line(sent: dict[str, Any]) -> str:
    """Return what a run sent, as the rest of a sentence."""
    said = f"sent {sent['calls']:,} calls, {sent['tokens']:,} tokens: {dollars(sent['usd'])}"
    again = [
        f"{sent[key]:,} {what}"
        for key, what in (("rate_limited", "times 429"), ("failed", "failed calls"))
        if sent[key]
    ]
    return f"{said} ({', '.join(again)}, all made again)" if again else said


def layer_table(layers: list[dict[str, Any]]) -> Any:
    """Return the hierarchy as a table, one row a layer."""
    rows = [
        (
            row["layer"],
            row["n_entities"],
            row["n_clusters"] or None,
            row["median_cluster"] or None,
            row["sparsity"],
            row["change_rate"],
            row["decision"],
        )
        for row in layers
    ]
    columns = ["layer", "entities", "clusters", "median", "CS", "change", "then"]
    return table("Hierarchy", columns, rows, right=(0, 1, 2, 3, 4, 5), spare=(5, 3))


def bill_table(usage: list[dict[str, Any]], title: str = "") -> Any:
    """Return the bill as a table, one row a stage, role, model and endpoint."""
    numbers = ("calls", "ledger_hits", "input_tokens", "cached_tokens", "output_tokens", "rate_limited", "rejected")
    rows = [
        (
            row["stage"],
            row["role"],
            row["endpoint"],
            row["model"],
            *(row[name] for name in numbers),
            dollars(row["cost_usd"]),
        )
        for row in usage
    ]
    total = [sum(row[name] for row in usage) for name in numbers]
    rows.append(("total", "", "", "", *total, dollars(sum(row["cost_usd"] for row in usage))))
    columns = ["stage", "role", "endpoint", "model", "calls", "ledger", "in", "cached", "out", "429", "refused", "cost"]
    title = title or "Bill: what these replies cost, whenever they were paid"
    return table(title, columns, rows, right=(4, 5, 6, 7, 8, 9, 10, 11), spare=(3, 10, 1, 7, 9, 5, 2))
