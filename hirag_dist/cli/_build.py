"""What index, retry and import share: one build under the lock, on record, and its summary."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import typer

from hirag_dist.cli._bill import bill_table, ratio_line, sent_line, tokens_per_corpus_token
from hirag_dist.cli._build_records import BuildArguments, BuildRecord, last_build, note_not_begun, sent_sums
from hirag_dist.cli._output import emit, out, table
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.composition.build import make_batches, make_executor, resolve
from hirag_dist.compute.kernels import has_gpu_workers
from hirag_dist.config.model import Config
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import IndexBusy, SnapshotError, StoreError
from hirag_dist.execution.runner import Run
from hirag_dist.indexing.context import ResolvedModels
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.llm.reply_store import Ledger, compact
from hirag_dist.llm.usage import UsageMeter, current_meter
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store

log = logging.getLogger(__name__)


def conclude(report: dict[str, Any], json: bool) -> None:
    """Print a build's summary; exit with 3 where there are dead letters."""
    if json:
        emit(report)
    else:
        show(report)
    if not report["complete"]:
        raise typer.Exit(3)


@dataclass(frozen=True)
class BuildOptions:
    """What a run is to do besides its configuration.

    Attributes:
        action: the command, for the record: index, import or retry.
        given: what the build reads, for `retry`.
        max_usd, max_tokens: what this run may spend.
        fresh: do finished stages again.
        retry: ask again about dead letters.
        wait_s: wait so long for another build of the index to end.
        forward: make the snapshot current also where somebody went back from that very one.
    """

    action: str
    given: BuildArguments
    max_usd: float | None = None
    max_tokens: int | None = None
    fresh: bool = False
    retry: bool = False
    wait_s: float = 0.0
    forward: bool = False

    @property
    def limits(self) -> dict[str, float | None]:
        """What this run may spend, for the record."""
        return {"max_usd": self.max_usd, "max_tokens": self.max_tokens}


def build(
    config: Config,
    store: Store,
    order: BuildOptions,
    work: Callable[[Build], BuildResult],
    bars: bool = False,
    check: Callable[[Build], None] = lambda made: None,
) -> tuple[BuildResult, UsageMeter]:
    """Run one build under the lock; return its result and what this run itself sent to models.

    Args:
        work: is given the build and says what to do with it.
        check: may refuse the build, before the record of the one before is put away.
    """
    prompts = load_prompts(config.prompts)
    store.check_writable()
    with BuildLock(store, order.wait_s) as lock, ProgressBars(bars) as shown:
        tidy_ledger(store, lock)
        probes = UsageMeter()
        resolved = _resolved(config, store, order, probes, lock)
        executor = make_executor(config, store, order.max_usd, order.max_tokens, resolved.kernels)
        batches = make_batches(config, store, order.max_usd, order.max_tokens, lock.fenced)
        try:
            run = Run(store, executor, (), config.max_reject_ratio, order.fresh, order.retry, lock.fenced, batches)
            made = Build(config, prompts, resolved, run, forward=order.forward)
            check(made)
            record = BuildRecord(
                store, order.action, order.given, config, made.decisive(), order.limits, fence=lock.fenced
            )
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


def _resolved(config: Config, store: Store, order: BuildOptions, probes: UsageMeter, lock: BuildLock) -> ResolvedModels:
    """Ask the models what they can; what that spends goes to `probes`, and that it failed on record."""
    token = current_meter.set(probes)
    try:
        before = None if order.fresh and config.kernels == "gpu" else _kernels_before(config, store)
        return resolve(config, Ledger(store), before, order.max_usd, order.max_tokens)
    except BaseException as error:
        with suppress(StoreError, IndexBusy):  # why it failed is what is told
            note_not_begun(store, order.action, order.given, config, order.limits, probes, error, lock.fenced)
        raise
    finally:
        current_meter.reset(token)


def _kernels_before(config: Config, store: Store) -> str | None:
    """Return the kernels of the index: those of its last snapshot.

    Where they are for workers of their own to say, what these said in a build that did not end counts more: it goes
    on without asking again.
    """
    if has_gpu_workers(config):
        with suppress(StoreError):  # a damaged record is none
            if said := (last_build(store) or {}).get("decisive", {}).get("kernels"):
                return str(said)
    own_id = current_id(store)
    if own_id is None:
        return None
    try:
        return str(open_snapshot(store, own_id).manifest.build["kernels"])
    except (SnapshotError, KeyError):  # of another version, or damaged: a build makes another
        return None


def tidy_ledger(store: Store, lock: BuildLock) -> None:
    """Compact the ledger where that is due; a build can do without."""
    try:
        compact(store, lock.check)
    except StoreError as error:
        log.warning("the ledger was not compacted: %s", error)


def summary(store: Store, result: BuildResult, sent: UsageMeter, seconds: float) -> dict[str, Any]:
    """Return what a build did, as JSON."""
    snapshot = open_snapshot(store, result.manifest.snapshot_id)
    usage = snapshot.table("usage").to_pylist()
    return {
        "snapshot": result.manifest.snapshot_id,
        "changed": result.changed,
        "stays_current": result.stays,
        "complete": result.manifest.complete,
        "stages_run": result.stages_run,
        "seconds": round(seconds, 2),
        "counts": dict(result.manifest.counts),
        "layers": snapshot.table("layers").to_pylist(),
        "communities_by_level": snapshot.info().communities_by_level,
        "usage": usage,
        "total_usd": sum(row["cost_usd"] for row in usage),
        "tokens_per_corpus_token": tokens_per_corpus_token(snapshot),
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
            f"{report['seconds']:.1f} s: {count_noun(counts['documents'], 'document')}, "
            f"{count_noun(counts['chunks'], 'chunk')}, "
            f"{count_noun(counts['entities'], 'entity', 'entities')}, {count_noun(counts['relations'], 'relation')}, "
            f"{count_noun(counts['reports'], 'report')}."
        )
        out.print(layer_table(report["layers"]))
        levels = ", ".join(f"{n:,} at level {level}" for level, n in report["communities_by_level"].items())
        out.print(f"Communities: {levels}.")
        out.print(bill_table(report["usage"]))
        if report["tokens_per_corpus_token"] is not None:
            out.print(ratio_line(report["tokens_per_corpus_token"]))
    out.print(f"This run {sent_line(report['this_run'])}.")
    where = report["index"]
    if report["stays_current"]:
        out.print(
            f"[yellow]{report['stays_current']} stays current:[/yellow] somebody went back to it from "
            f"{report['snapshot']}. To go forward again add --make-current, or write that id into {where}/current."
        )
    if report["dropped"]:
        gone = count_noun(report["dropped"], "dead letter was", "dead letters were")
        out.print(f"{gone} dropped before, and accepted as lost.")
    if not report["complete"]:
        out.print(
            f"[yellow]Incomplete: {count_noun(report['dead_letters'], 'dead letter')}.[/yellow] `hirag-dist "
            "status --index "
            f"{where} --letters` shows all, `hirag-dist retry --index {where}` asks again."
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
    columns = ["layer", "entities", "clusters", "median", "CS", "change", "then"]
    return table("Hierarchy", columns, rows, right=(0, 1, 2, 3, 4, 5), spare=(5, 3))
