"""`hirag-dist import`: another tool's working folder becomes a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hirag_dist.api.build_keywords import run_with
from hirag_dist.application.build import read_import, run_import
from hirag_dist.application.exported_index import FOLDER, exported_snapshot, import_snapshot
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import IndexOption, WriteOptions
from hirag_dist.cli._output import err
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.core.text.normalize import count_noun

Communities = Literal["new", "keep"]


def import_graph(
    folder: Annotated[
        str,
        typer.Argument(metavar="FOLDER", help="Folder of GraphRAG, LightRAG, nano-graphrag or HiRAG, or an export."),
    ],
    index: IndexOption,
    options: WriteOptions,
    communities: Annotated[
        Communities | None,
        typer.Option(
            help="new: detect communities over all layers and write reports (the default); keep: import both. Given "
            "for an export of hirag-dist, it is imported like a graph of another tool."
        ),
    ] = None,
) -> None:
    """Import a graph that another tool extracted, build its hierarchy and publish a snapshot.

    An export of hirag-dist whose tables were not edited is imported as it is: its snapshot is copied.
    """
    exported = exported_snapshot(folder) if communities is None else None
    if exported is not None:
        snapshot_id = exported.manifest.snapshot_id
        headline = f"{folder} is an export of snapshot {snapshot_id}: it was copied, and nothing was built."
        conclude(import_snapshot(exported, index, force_current=options.make_current), options.json, headline)
        return
    if communities is None and (Path(folder).expanduser() / FOLDER).is_dir():
        err.print(
            f"The tables in {folder} are not those that were exported: layers above 0 are built again.", markup=False
        )
    loaded = options.load()
    graph = read_import(folder, loaded, communities == "keep")
    if not options.json:
        err.print(
            f"{folder} is of kind {graph.kind}: {count_noun(graph.entities.num_rows, 'entity', 'entities')}, "
            f"{count_noun(graph.relations.num_rows, 'relation')}, {count_noun(graph.chunks.num_rows, 'chunk')}, "
            f"{count_noun(graph.claims.num_rows, 'claim')}."
        )
    with ProgressBars(not options.json) as bars:
        result = run_with(
            {"config": loaded, "progress": bars, **options.limits},  # type: ignore[typeddict-item]
            lambda config, build, listeners: run_import(graph, folder, index, config, build, listeners),
        )
    conclude(result, options.json)
