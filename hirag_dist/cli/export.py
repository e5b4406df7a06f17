"""`hirag-dist export` and `import`: indexes in the formats of other tools."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from hirag_dist.api.build import run_with
from hirag_dist.application.build import read_import, run_import
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import IndexOption, JsonOption, SnapshotOption, WriteOptions
from hirag_dist.cli._output import conclude_reading, emit, err, out, replacing
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, StoreError
from hirag_dist.interop.exports import graphrag_tables, write_graphml
from hirag_dist.storage.layout import METADATA_TABLES
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store


def export(
    index: IndexOption,
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="A .graphml file, or a folder for Parquet tables.")],
    form: Annotated[
        Literal["auto", "graphml", "graphrag"], typer.Option("--format", help="auto: by the extension of PATH.")
    ] = "auto",
    snapshot: SnapshotOption = None,
    json: JsonOption = False,
) -> None:
    """Write GraphML, or Parquet tables with GraphRAG's names and columns.

    Files of the same names are replaced.
    """
    opened = open_current(Store(index), snapshot)
    graphml = form == "graphml" or (form == "auto" and to.endswith(".graphml"))
    if form == "auto" and not graphml and Path(to).suffix:
        raise ConfigError(f"{to}: use the extension .graphml, a folder, or --format")
    try:
        if graphml:
            tables = {name: opened.table(name) for name in ("entities", "relations", "communities", "claims")}
            with replacing(Path(to)) as file, file.open("wb") as stream:
                write_graphml(tables, stream)
        written = [to] if graphml else _parquet(opened, to)
    except OSError as error:
        raise StoreError(f"cannot write {to}: {error.strerror or error}") from error
    if json:
        emit({"written": written, "fallback": opened.fallback or None})
    else:
        out.print(f"Wrote {', '.join(written)}")
    conclude_reading(opened.fallback)


def _parquet(snapshot: Snapshot, to: str) -> list[str]:
    names = ("documents", "chunks", "entities", "relations", "communities", "reports", "claims", *METADATA_TABLES)
    tables: dict[str, pa.Table] = {name: snapshot.table(name) for name in names}
    folder = Path(to)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with ExitStack() as files:
        for name, table in graphrag_tables(tables, snapshot.manifest.created_at[:10]).items():
            file = folder / f"{name}.parquet"
            pq.write_table(table, files.enter_context(replacing(file)))
            written.append(str(file))
    return written


def import_graph(
    folder: Annotated[
        str,
        typer.Argument(metavar="FOLDER", help="Folder of GraphRAG, LightRAG, nano-graphrag or HiRAG."),
    ],
    index: IndexOption,
    options: WriteOptions,
    communities: Annotated[
        Literal["new", "keep"],
        typer.Option(help="new: detect communities over all layers and write reports; keep: import both."),
    ] = "new",
) -> None:
    """Import a graph that another tool extracted, build its hierarchy and publish a snapshot."""
    loaded = options.load()
    graph = read_import(folder, loaded, communities == "keep")
    if not options.json:
        err.print(
            f"{folder} is of kind {graph.kind}: {count_noun(graph.entities.num_rows, 'entity', 'entities')}, "
            f"{count_noun(graph.relations.num_rows, 'relation')}, {count_noun(graph.chunks.num_rows, 'chunk')}, "
            f"{count_noun(graph.claims.num_rows, 'claim')}."
        )
        if graph.n_merged or graph.n_merged_relations or graph.n_added:
            err.print(
                f"{count_noun(graph.n_merged, 'entity', 'entities')} and "
                f"{count_noun(graph.n_merged_relations, 'relation')} became one with another of the same name or pair; "
                f"{count_noun(graph.n_added, 'entity', 'entities')} that only a relation names "
                f"{'was' if graph.n_added == 1 else 'were'} added."
            )
    with ProgressBars(not options.json) as bars:
        result = run_with(
            {"config": loaded, "progress": bars, **options.limits},  # type: ignore[typeddict-item]
            lambda config, build, listeners: run_import(graph, folder, index, config, build, listeners),
        )
    conclude(result, options.json)
