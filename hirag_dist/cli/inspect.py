"""`hirag-dist inspect`: what is in an index, in numbers or as a page."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from hirag_dist.application.drift import measure_drift, update_state
from hirag_dist.cli._bill import clustered_line, debt_line, missing_line, update_line
from hirag_dist.cli._build import layer_table
from hirag_dist.cli._options import IndexOption, JsonOption, SnapshotOption
from hirag_dist.cli._output import conclude_reading, emit, out, replacing, table
from hirag_dist.cli.status import show_bill
from hirag_dist.compute.kernels import make_kernels, resolve_kernels
from hirag_dist.core.drift import UpdateStaleness
from hirag_dist.core.graph.bfs import hop_distances
from hirag_dist.core.graph.hierarchy_metrics import PathLengthSample
from hirag_dist.core.text.normalize import count_noun, count_plural
from hirag_dist.errors import ConfigError, HiragError, StoreError
from hirag_dist.html import Formatted, Table
from hirag_dist.indexing.budget import known_bill, usage_table
from hirag_dist.inspection.model import Inspection
from hirag_dist.inspection.page import drift_sections, outline, render_page, resolved_section, update_section
from hirag_dist.inspection.summary import TABLES, inspect_tables
from hirag_dist.storage.snapshot.documents import tokens_per_corpus_token
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import CsrGraph, IntVector
from hirag_dist.types.index_info import Interval

logger = logging.getLogger(__name__)
CHECK_FAILED = 6  # exit code


def inspect(
    index: IndexOption,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write one self-contained page.")] = None,
    drift: Annotated[
        bool,
        typer.Option(
            "--drift", help="Compare the index with a shadow clustering of its entities; takes the time of clustering."
        ),
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="With --drift: exit with code 6 if a gate fails.")] = False,
    snapshot: SnapshotOption = None,
    json: JsonOption = False,
) -> None:
    """Show layers, sparsity, communities, graph measures and the bill of an index."""
    if check and not drift:
        raise ConfigError("--check is about the gates of drift: give --drift with it")
    opened = open_current(Store(index), snapshot)
    inspection = write_page(opened, html, drift) if html else inspect_snapshot(opened, drift)
    if json:
        facts = {
            "tokens_per_corpus_token": tokens_per_corpus_token(opened, known_bill(opened)[0]),
            "fallback": opened.fallback or None,
        }
        emit(inspection.to_dict() | facts)
    else:
        _show(opened, inspection)
        if html:
            out.print(f"Wrote {html}; open it in a browser.")
    if check and inspection.drift is not None and not inspection.drift.holds:
        raise typer.Exit(CHECK_FAILED)
    conclude_reading(opened.fallback)


def inspect_snapshot(snapshot: Snapshot, drift: bool = False) -> Inspection:
    """Return a snapshot in numbers. Hops are counted on a GPU where one can be used: the numbers are the same."""
    tables = {name: snapshot.table(name) for name in (*TABLES, "aliases", "claims")}
    tables["usage"] = usage_table(known_bill(snapshot)[0])
    found = inspect_tables(tables, snapshot.manifest.model_dump(mode="json"), _hops)
    measured = measure_drift(snapshot) if drift else None
    return replace(found, update=update_state(snapshot) if measured is None else measured.update, drift=measured)


def _hops(graph: CsrGraph, sources: IntVector) -> NDArray[np.int32]:
    try:
        return make_kernels(resolve_kernels("auto")).bfs(graph, sources)
    except HiragError as error:  # a card that others have filled
        logger.warning("hops are counted on the CPU: %s", error)
        return hop_distances(graph, sources)


def write_page(snapshot: Snapshot, file: str, drift: bool = False) -> Inspection:
    """Write the page of a snapshot and return its numbers."""
    inspection = inspect_snapshot(snapshot, drift)
    communities = outline({name: snapshot.table(name) for name in ("entities", "relations", "communities", "reports")})
    try:
        with replacing(Path(file)) as new:
            new.write_text(render_page(inspection, communities), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}") from error
    return inspection


def _show(snapshot: Snapshot, inspection: Inspection) -> None:
    counts = snapshot.manifest.counts
    state = "complete" if snapshot.manifest.complete else "incomplete"
    kernels = snapshot.manifest.build.get("kernels", "unknown")
    made = f"made {snapshot.manifest.created_at} with kernels: {kernels}"
    out.print(f"Snapshot {snapshot.manifest.snapshot_id}, {state}, {made}")
    shown = {name: n for name, n in counts.items() if name not in ("usage", "layers", "clusters")}
    out.print(", ".join(count_plural(n, name) for name, n in shown.items()))
    out.print(layer_table(snapshot.table("layers").to_pylist()))
    shares = [f"{layer.covered:.1%} of layer {layer.layer}" for layer in inspection.layers if layer.covered is not None]
    if shares:
        out.print(f"Entities with a summary above them: {', '.join(shares)}.")
    if (resolved := resolved_section(inspection)) is not None:
        show_section(resolved)
    graph = inspection.graph
    rows = [(hub.name, hub.type, hub.layer, hub.degree) for hub in inspection.hubs[:10]]
    out.print(table("Hubs", ["entity", "type", "layer", "degree"], rows, right=(2, 3)))
    out.print(
        f"Components: {graph.components:,}; the largest holds {graph.largest_share:.1%}; {graph.isolated:,} isolated. "
        f"Clustering coefficient (Eq. 18): {inspection.base_graph.clustering.transitivity:.4f} in "
        f"layer 0, {graph.clustering.transitivity:.4f} over all layers."
    )
    out.print(_paths_line(inspection.paths))
    levels = [
        (level.level, level.communities, level.sizes[2], level.sizes[4], level.reports) for level in inspection.levels
    ]
    out.print(
        table("Communities", ["level", "communities", "median size", "largest", "reports"], levels, (0, 1, 2, 3, 4))
    )
    if inspection.reports.missing:
        out.print(missing_line(inspection.reports.missing))
    if inspection.drift is not None:
        if inspection.drift.update is not None:
            out.print(_update_line(inspection.drift.update))
            show_section(replace(update_section(inspection.drift.update), title="Texts that are due", note=""))
        for section in drift_sections(inspection.drift):
            show_section(section)
    elif inspection.update is not None:
        if line := clustered_line(snapshot.manifest.notes["update"]):
            out.print(line)
        out.print(_update_line(inspection.update))
    show_bill(snapshot, json=False)


def _paths_line(paths: PathLengthSample) -> str:
    if not paths.pairs:
        return "Path lengths: no two entities of layer 0 stand in different chunks."
    sources = count_noun(paths.sources, "entity", "entities")
    how = "all" if paths.exact else f"a sample of {sources} with every other one,"
    reached = (1 - missing / paths.pairs for missing in (paths.flat_unreachable, paths.unreachable))
    flat, whole = (f"{share:.1%}" for share in reached)
    said = (
        f"Path lengths between entities that share no chunk ({how} {count_noun(paths.pairs, 'pair')}): with a path in "
        f"layer 0 {flat}, over all layers {whole}"
    )
    if paths.flat_mean is None:
        return f"{said}, of {paths.mean:.2f} hops on average." if paths.mean is not None else f"{said}."
    return (
        f"{said}; mean hops {paths.flat_mean:.2f} in layer 0 and {paths.mean_of_flat:.2f} over all layers for the "
        f"pairs that layer 0 joins, {paths.mean:.2f} for all that have a path."
    )


def _update_line(state: UpdateStaleness) -> str:
    return f"{update_line(state.number, state.documents, state.other_changes)} {debt_line({'debt': state.debt})}"


def show_section(section: Table) -> None:
    """Print a table of a page and its note; columns of numbers that do not fit are left out."""
    rows = [[_cell(cell, section.form) for cell in row] for row in section.rows]
    right = [
        place
        for place in range(len(section.columns))
        if rows
        and not any(isinstance(row[place], str) and not isinstance(row[place], Formatted) for row in section.rows)
    ]
    spare = [place for place in reversed(range(1, len(section.columns))) if place in right]
    out.print(table(section.title, section.columns, rows, right=right, spare=spare))
    if section.note:
        out.print(section.note, style="dim", markup=False)


def _cell(cell: Any, form: str) -> Any:
    if isinstance(cell, Interval):
        if cell.value != cell.value:
            return None
        rough = ".0%" if form.endswith("%") else form
        low, high = (format(each, rough) for each in (cell.low, cell.high))
        return f"{format(cell.value, form)} ({low} to {high})"
    if isinstance(cell, float):
        return format(cell, form) if cell == cell else None
    return cell
