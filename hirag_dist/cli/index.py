"""`hirag-dist index`: build and publish a snapshot."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from hirag_dist.cli.options import ConfigOption, IndexOption, JsonOption, SetOption, configuration
from hirag_dist.cli.output import dollars, emit, out, table, use_json
from hirag_dist.cli.progress import Bars, BuildRecord
from hirag_dist.config import Config
from hirag_dist.config_file import load_prompts
from hirag_dist.errors import HiragError, StoreError
from hirag_dist.execution.run import Run
from hirag_dist.index.lock import BuildLock
from hirag_dist.index.reader import open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.pipeline import Build, BuildResult
from hirag_dist.pool.ledger import compact
from hirag_dist.pool.metering import Use
from hirag_dist.wiring import make_executor, resolve

log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("index")(index)


def index(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders, globs, s3://… .")],
    index: IndexOption,
    config: ConfigOption = None,
    settings: SetOption = None,
    executor: Annotated[str | None, typer.Option(help="ray or inline.")] = None,
    workers: Annotated[int | None, typer.Option(help="Workers of Ray; one a core by default.")] = None,
    text_field: Annotated[str | None, typer.Option(help="Field of JSON, CSV and Parquet records that is read.")] = None,
    title_field: Annotated[str | None, typer.Option(help="Field with the title.")] = None,
    label_field: Annotated[str | None, typer.Option(help="Field with the labels.")] = None,
    max_usd: Annotated[float | None, typer.Option(min=0, help="Stop before this run spends more.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Stop before this run uses more tokens.")] = None,
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
            "reading.text_field": text_field,
            "reading.title_field": title_field,
            "reading.label_field": label_field,
        },
    ).config
    started = time.perf_counter()
    store = Store(index)
    result, sent = build(
        loaded,
        store,
        lambda made: made.index(inputs, require_complete),
        max_usd,
        max_tokens,
        fresh,
        bars=not json,
        wait_s=wait,
    )
    conclude(summary(store, result, sent, time.perf_counter() - started), json)


def conclude(report: dict[str, Any], json: bool) -> None:
    """Print a build's summary; exit with 3 where there are dead letters."""
    if json:
        emit(report)
    else:
        show(report)
    if not report["complete"]:
        raise typer.Exit(3)


def build(
    config: Config,
    store: Store,
    work: Callable[[Build], BuildResult],
    max_usd: float | None = None,
    max_tokens: int | None = None,
    fresh: bool = False,
    bars: bool = False,
    wait_s: float = 0.0,
) -> tuple[BuildResult, Use]:
    """Run one build under the lock; return its result and what this run itself sent to models.

    Args:
        work: is given the build and says what to do with it.
        wait_s: wait so long for another build of the index to end.
    """
    prompts = load_prompts(config.prompts)
    store.check_writable()
    with BuildLock(store, wait_s) as lock, Bars(bars) as shown:
        tidy_ledger(store, lock)
        resolved = resolve(config)
        record = BuildRecord(store, lock.fenced)
        executor = make_executor(config, store, max_usd, max_tokens)
        try:
            run = Run(store, executor, (shown, record), config.max_reject_ratio, fresh, lock.fenced)
            result = work(Build(config, prompts, resolved, run))
            record.close("done", snapshot=result.manifest.snapshot_id)
        except HiragError as error:
            record.close("failed", error=str(error))
            raise
        except KeyboardInterrupt:
            record.close("interrupted")
            raise
        finally:
            executor.close()
    sent = Use()
    for use in run.sent.uses.values():
        sent.add(use)
    return result, sent


def tidy_ledger(store: Store, lock: BuildLock) -> None:
    """Compact the ledger where that is due; a build can do without."""
    try:
        compact(store, lock.check)
    except StoreError as error:
        log.warning("the ledger was not compacted: %s", error)


def summary(store: Store, result: BuildResult, sent: Use, seconds: float) -> dict[str, Any]:
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
        "this_run": {"calls": sent.calls - sent.ledger_hits, "tokens": sent.sent_tokens, "usd": sent.sent_cost_usd},
        "dead_letters": result.rejects,
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
    ran = report["this_run"]
    out.print(f"This run sent {ran['calls']:,} calls, {ran['tokens']:,} tokens: {dollars(ran['usd'])}.")
    if not report["complete"]:
        out.print(
            f"[yellow]Incomplete: {report['dead_letters']} units are dead letters;[/yellow] "
            f"`hirag-dist status --index {report['index']}` lists them."
        )


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
    columns = ["layer", "entities", "clusters", "median size", "CS", "change", "then"]
    return table("Hierarchy", columns, rows, right=(0, 1, 2, 3, 4, 5))


def bill_table(usage: list[dict[str, Any]]) -> Any:
    """Return the bill as a table, one row a stage and model."""
    rows = [
        (
            row["stage"],
            row["model"],
            row["calls"],
            row["ledger_hits"],
            row["input_tokens"],
            row["output_tokens"],
            dollars(row["cost_usd"]),
        )
        for row in usage
    ]
    total = [sum(row[name] for row in usage) for name in ("calls", "ledger_hits", "input_tokens", "output_tokens")]
    rows.append(("total", "", *total, dollars(sum(row["cost_usd"] for row in usage))))
    columns = ["stage", "model", "calls", "from ledger", "tokens in", "tokens out", "cost"]
    return table("Bill (what the replies in this index cost, whenever they were paid)", columns, rows, (2, 3, 4, 5, 6))
