"""`hirag-dist remove` and `prune`: documents removed and forgotten on request, and old snapshots removed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer

from hirag_dist.api.build import remove_documents
from hirag_dist.application.forget import forget, run_forget
from hirag_dist.application.forget_evidence import (
    SelectedDocuments,
    find_removed,
    pending_forget,
    read_given,
    select_documents,
)
from hirag_dist.application.forget_verification import VerificationResult, verify_removed
from hirag_dist.cli._build import show
from hirag_dist.cli._options import ConfigOptions, IndexOption, SourceOption, WaitOption, WriteOptions
from hirag_dist.cli._output import VERSIONS, emit, err, out, seconds, table
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.composition.build_records import last_build
from hirag_dist.config.model import Config, VectorsConfig
from hirag_dist.core.retrieval.places import record_name
from hirag_dist.core.text.normalize import count_noun, first_names
from hirag_dist.errors import BackendUnavailable, ConfigError, InputError
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.retrieval.vector_index.milvus import MilvusCollections, lite_collections, server_collections
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot import gc
from hirag_dist.storage.snapshot.gc import GcPlan, RetentionPolicy, collections_of, plan_gc, served
from hirag_dist.storage.snapshot.reader import current_id, no_index, open_snapshot
from hirag_dist.storage.store import Store


def prune(
    index: IndexOption,
    options: ConfigOptions,
    keep: Annotated[
        int,
        typer.Option(
            min=0, help="Snapshots to keep in addition to the current one: the most recently current, of any age."
        ),
    ] = 1,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Remove only snapshots that have not been current for this long: 90m, 12h, 1d, 2w. A running "
            "service may have a more recent one open.",
        ),
    ] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    wait: WaitOption = 0.0,
) -> None:
    """Remove old snapshots of an index, what was derived from them, and their collections in Milvus.

    The current snapshot and that of the last build always stay; paid replies and finished work are not touched. Use the
    --config of the services: it names the Milvus server with their collections. An unfinished `remove --forget` is
    continued first.
    """
    rule = RetentionPolicy(keep, seconds(older_than, "--older-than"))
    loaded = options.load()
    store = Store(index)
    served(store)  # before the lock, which would create a folder for a mistyped name
    with BuildLock(store, wait) as lock, ExitStack() as stack:
        forgotten = None
        if not dry_run and pending_forget(store) is not None:
            forgotten = forget(store, loaded, lock, (), rule.older_than_s)
        plan = plan_gc(store, rule, time.time())
        places = []
        for collections, shared in _places(store, loaded.vectors):
            stack.enter_context(collections)
            places.append((collections, collections_of(plan, collections, shared=shared)))
        if not dry_run:
            gc.prune(store, lock, plan, places)
    dropped = [name for _, names in places for name in names]
    if options.json:
        emit(_prune_report(store, plan, dropped, dry_run) | {"forgotten": forgotten and forgotten.to_dict()})
        return
    _show_pruned(plan, dropped, dry_run, _kept_line(store, plan.kept, keep, older_than))
    if forgotten is not None:
        done = "forgotten" if forgotten.complete else "still to be forgotten; `hirag-dist status` says why"
        out.print(f"{count_noun(len(forgotten.documents), 'removed document', f'removed {VERSIONS}')}: {done}.")


def _places(store: Store, vectors: VectorsConfig) -> Iterator[tuple[MilvusCollections, bool]]:
    """Yield the Milvus servers that may have collections, and whether other indexes share them."""
    if vectors.uri:
        yield server_collections(vectors), True
    try:
        lite = lite_collections(store)
    except BackendUnavailable as error:
        err.print(f"Collections in Milvus Lite stay until the next run: {error}")
        return
    if lite is not None:
        yield lite, False


def _prune_report(store: Store, plan: GcPlan, dropped: list[str], dry_run: bool) -> dict[str, object]:
    return {
        "index": store.uri,
        "dry_run": dry_run,
        "removed": [
            {"snapshot": one.snapshot_id, "retired_at": _time(one.retired_at), "bytes": one.size_bytes}
            for one in plan.snapshots
        ],
        "kept": list(plan.kept),
        "collections": dropped,
        "derived": list(plan.orphans),
        "bytes": sum(one.size_bytes for one in plan.snapshots),
    }


def _kept_line(store: Store, kept: Sequence[str], keep: int, older_than: str) -> str:
    """Return how many snapshots stay, and why, as a sentence."""
    current, pending = served(store), pending_forget(store)
    in_use = {(last_build(store) or {}).get("snapshot")} - {current}
    to_forget = set() if pending is None or pending.verified else set(pending.snapshots) - in_use - {current}
    others = len(set(kept) - in_use - to_forget - {current})
    reasons = [
        (1, "is current"),
        (len(in_use.intersection(kept)), "is that of the last build"),
        (len(to_forget.intersection(kept)), "with documents that are being forgotten"),
        (min(keep, others), f"by --keep {keep}"),
        (max(others - keep, 0), f"replaced less than {older_than} ago (--older-than)"),
    ]
    said = ", ".join(f"{count:,} {why}" for count, why in reasons if count)
    return f"{count_noun(len(kept), 'snapshot stays', 'snapshots stay')}: {said}."


def _show_pruned(plan: GcPlan, dropped: list[str], dry_run: bool, kept: str) -> None:
    rows = [
        (one.snapshot_id, _time(one.retired_at) or "never finished", f"{one.size_bytes / 1e6:,.1f}")
        for one in plan.snapshots
    ]
    if rows:
        title = "Would be removed" if dry_run else "Removed"
        out.print(table(title, ["snapshot", "current until", "MB"], rows, right=(2,)))
    verb = "would be removed" if dry_run else "removed"
    out.print(
        f"{count_noun(len(rows), 'snapshot')} and {count_noun(len(dropped), 'collection')} {verb}, "
        f"{sum(one.size_bytes for one in plan.snapshots) / 1e6:,.1f} MB. {kept}"
    )


def _time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


_SHOWN = 10  # documents that are listed
_SHOWN_FINDINGS = 20


def remove(
    index: IndexOption,
    options: WriteOptions,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Document ids, or the source ids of their owner.")
    ] = None,
    source: SourceOption = None,
    input_file: Annotated[
        Path | None, typer.Option("--input-file", metavar="FILE", help="File with ids, one a line; - for stdin.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Also remove what derives from them in stored replies, work folders and old snapshots."
        ),
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="With --forget: remove old snapshots at once, without the grace period.")
    ] = False,
    verify_only: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Remove nothing: search for what still derives from the named, removed documents (exit 6).",
        ),
    ] = False,
    input: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="FILE", help="With --verify: text of a document that no snapshot has."),
    ] = None,
    snapshot_only: Annotated[
        bool, typer.Option("--snapshot-only", help="With --verify: search the current snapshot alone.")
    ] = False,
) -> None:
    """Remove documents from an index and publish a snapshot in which nothing derives from them.

    Other documents are not read again. Texts that derive from the removed documents are written again within the
    budget, or replaced by stand-ins, which `refresh` replaces. --verify shows whether anything is left.
    With --forget, documents that were removed before may be named too; without ids, an earlier run is continued.
    """
    if now and not forget:
        raise ConfigError("--now is about old snapshots: give --forget with it")
    if (input or snapshot_only) and not verify_only:
        raise ConfigError("--input and --snapshot-only are about a search: give --verify with them")
    if verify_only and source:
        raise ConfigError("--verify is about documents that are gone, which no --source finds: name their ids")
    named = dict.fromkeys([*(ids or []), *_ids_of(input_file)])
    selection = DocumentSelection(tuple(named), tuple(source or []))
    if verify_only:
        verify(index, options.load(), selection.ids, input or (), snapshot_only=snapshot_only, json=options.json)
        return
    if not (selection.ids or selection.sources or forget):
        raise InputError(
            f"name the documents: their ids, which `hirag-dist status --documents --index {shlex.quote(index)}` lists, "
            "--source GLOB, or --input-file FILE"
        )
    selected = select_documents(index, selection, allow_absent=forget)
    report: dict[str, Any] = {"dry_run": dry_run, "documents": [asdict(each) for each in selected.documents]}
    if not options.json:
        _show_selected(selected, dry_run)
    if dry_run:
        _finish(report, options.json)
        return
    loaded = options.load()
    complete = True
    if selected.documents:
        with ProgressBars(not options.json) as bars:
            result = remove_documents(
                selection.ids if not selected.absent else [each.document_id for each in selected.documents],
                index,
                sources=() if selected.absent else selection.sources,
                config=loaded,
                progress=bars,
                **options.limits,
            )
        complete = not result.exit_code
        report |= result.to_dict()
        if not options.json:
            show(report)
    if forget:
        gone = [*(each.document_id for each in selected.documents), *selected.absent]
        forgotten = run_forget(index, loaded, gone, now, options.wait)
        complete = complete and not (forgotten.findings or forgotten.problems)
        report["forgotten"] = forgotten.to_dict()
    _finish(report, options.json, complete)


def _finish(report: dict[str, Any], json: bool, complete: bool = True) -> None:
    if json:
        emit(report)
    elif "forgotten" in report:
        _show_forgotten(report["forgotten"])
    if not complete:
        raise typer.Exit(3)


def _ids_of(file: Path | None) -> list[str]:
    """Return the ids in a file, one a line.

    Raises:
        InputError: it cannot be read, or holds none.
    """
    if file is None:
        return []
    try:
        text = typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        raise InputError(f"{file} holds no id: it takes one a line")
    return found


def _show_selected(selected: SelectedDocuments, dry_run: bool) -> None:
    found = selected.documents
    if not found:
        return
    verb = "would be removed" if dry_run else "to remove"
    out.print(f"{count_noun(len(found), 'document')} of {selected.n_documents:,} {verb}:")
    for each in found[:_SHOWN]:
        title = f"  {each.title}" if each.title and each.title != each.uri else ""
        out.print(f"  {each.document_id}  {record_name(each.uri, each.record)}{title}", markup=False)
        if copies := [record_name(*place) for place in each.copies]:
            out.print(f"    the same text: {first_names(copies)}; ids: {first_names(each.source_ids)}", markup=False)
    if len(found) > _SHOWN:
        out.print(f"  and {len(found) - _SHOWN:,} more; --json lists all.")


def _show_forgotten(forgotten: dict[str, Any]) -> None:
    documents = count_noun(len(forgotten["documents"]), "document", VERSIONS)
    if forgotten["complete"]:
        out.print(f"{documents} forgotten.")
    elif not (forgotten["findings"] or forgotten["problems"]):
        old = count_noun(len(forgotten["waiting"]), "old snapshot")
        out.print(
            f"{documents} forgotten, except in {old} within the grace period: `hirag-dist prune` removes them when it "
            "is over, --now at once."
        )
    else:
        out.print(f"[yellow]{documents} still to be forgotten:[/yellow]")
        for finding in forgotten["findings"]:
            out.print(f"  {finding['place']}: {finding['what']} ({finding['count']:,})", markup=False)
        for problem in forgotten["problems"]:
            out.print(f"  {problem}", markup=False)


FOUND_CODE = 6


def verify(
    index: str, config: Config, ids: Sequence[str], input: Sequence[str], *, snapshot_only: bool, json: bool
) -> None:
    """Search everything in an index for what derives from removed documents, and print it. Makes no call.

    Args:
        input: Files with the texts of documents that no snapshot has any more.

    Raises:
        typer.Exit: With code 6, if something was found, a place could not be read, or no text of a document is known.
    """
    store = Store(index)
    if current_id(store) is None:
        raise no_index(store)
    pending = pending_forget(store)
    if not ids and not input:
        being_forgotten = "" if pending is None else f" (those being forgotten: {first_names(pending.documents)})"
        raise InputError(
            f"name the removed documents: their ids{being_forgotten}, which `remove` printed and `hirag-dist status "
            f"--documents --snapshot ID --index {shlex.quote(index)}` lists of a snapshot that has them, or files with "
            "their text (--input FILE)"
        )
    given = read_given(config, store, list(input)) if input else None
    is_pending = pending is not None and not set(ids).isdisjoint(pending.documents)
    chunks = pending.chunks if pending is not None and is_pending else ()
    removed = find_removed(store, list(ids), given, chunks)
    still_there = _served(store, removed.ids)
    if still_there:  # what derives from these is expected: only the others are searched for
        named = {own for names in still_there.values() for own in names}
        given = None if given is None else (_without(still_there, given[0]), _without(still_there, given[1]))
        removed = find_removed(store, [own for own in ids if own not in named], given, chunks)
    result = VerificationResult((), (), ())
    if removed.ids or removed.unknown:
        result = verify_removed(store, config, removed, snapshot_only=snapshot_only)
    result = replace(result, not_removed=tuple(sorted(still_there)))
    if removed.unknown and not input:
        unproved = (
            f"the texts, names and vectors of {first_names(removed.unknown)}: no snapshot of {store.uri} has the "
            "document, unless the id is mistyped; give it with --input FILE to search for them too"
        )
        result = replace(result, problems=(*result.problems, unproved))
    if json:
        emit(result.to_dict())
    else:
        _show(result, "the current snapshot" if snapshot_only else store.uri)
        if result.findings:
            is_begun = pending is not None and not removed.ids.isdisjoint(pending.documents)
            out.print(_next_step(store, is_begun), markup=False)
        if still_there:
            removes = f"`hirag-dist remove ID… --index {store.quoted}` publishes a snapshot without the documents"
            out.print(f"Not removed yet: {first_names(result.not_removed)}. Next: {removes}.", markup=False)
    if not result.clean:
        raise typer.Exit(FOUND_CODE)


def _served(store: Store, ids: Collection[str]) -> dict[str, list[str]]:
    """Return the documents that the current snapshot has, by id, with their ids and source ids."""
    rows = open_snapshot(store).table("documents", ["document_id", "source_ids"]).to_pylist()
    return {row["document_id"]: [row["document_id"], *row["source_ids"]] for row in rows if row["document_id"] in ids}


def _without(ids: Collection[str], table: pa.Table) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["document_id"], pa.array(sorted(ids), pa.string()))))


def _next_step(store: Store, is_begun: bool) -> str:
    """Return the command that removes what a verification found; it needs no ids again of what is being forgotten."""
    ids = "" if is_begun else "ID… "
    return (
        f"Next: `hirag-dist remove {ids}--forget --index {store.quoted}` removes what is listed, from reply store, "
        "work folders and records too. Old snapshots follow when they have not been current for a day, by "
        f"`hirag-dist prune --index {store.quoted}`; with --now they go at once."
    )


def _show(result: VerificationResult, where: str) -> None:
    rows = [(each.place, each.what, each.count, "; ".join(each.examples)) for each in result.findings]
    if rows:
        columns = ["place", "what", "count", "examples"]
        out.print(table("Derived from the documents", columns, rows[:_SHOWN_FINDINGS], right=(2,), spare=(3,)))
        if len(rows) > _SHOWN_FINDINGS:
            out.print(f"  and {len(rows) - _SHOWN_FINDINGS:,} more; --json lists all.")
    for problem in result.problems:
        out.print(f"Not searched: {problem}", markup=False)
    if (result.documents or result.unknown) and not (rows or result.problems):
        documents = count_noun(len(result.documents) or len(result.unknown), "document", VERSIONS)
        out.print(f"Nothing in {where} derives from {documents}.", markup=False)
    elif result.unknown and not rows:
        out.print(f"Nothing in {where} that was searched has the id {first_names(result.unknown)}.", markup=False)
