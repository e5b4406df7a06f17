"""`hirag-dist export`: an index in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from hirag_dist.application.exported_index import keep_snapshot
from hirag_dist.cli._options import IndexOption, JsonOption, SnapshotOption
from hirag_dist.cli._output import conclude_reading, emit, out
from hirag_dist.errors import ConfigError, StoreError
from hirag_dist.interop.exporters import graphrag_tables, write_graphml
from hirag_dist.storage.layout import METADATA_TABLES
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store

Form = Literal["auto", "graphml", "graphrag"]


def export(
    index: IndexOption,
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="A .graphml file, or a folder for Parquet tables.")],
    form: Annotated[Form, typer.Option("--format", help="auto: by the extension of PATH.")] = "auto",
    tables_only: Annotated[
        bool,
        typer.Option("--tables-only", help="Write no copy of the snapshot for an exact `import`."),
    ] = False,
    snapshot: SnapshotOption = None,
    json: JsonOption = False,
) -> None:
    """Write GraphML, or Parquet tables with GraphRAG's names and columns."""
    opened = open_current(Store(index), snapshot)
    graphml = form == "graphml" or (form == "auto" and to.endswith(".graphml"))
    if form == "auto" and not graphml and Path(to).suffix:
        raise ConfigError(f"{to}: use the extension .graphml, a folder, or --format")
    try:
        written = _graphml(opened, to) if graphml else _parquet(opened, to)
        alone = graphml or tables_only
        kept = None if alone else keep_snapshot(opened, Path(to), [Path(name).name for name in written])
    except OSError as error:
        raise StoreError(f"cannot write {to}: {error.strerror or error}") from error
    if json:
        emit({"written": written, "snapshot": kept, "fallback": opened.fallback or None})
    else:
        out.print(f"Wrote {', '.join(written if kept is None else [*written, kept])}")
    conclude_reading(opened.fallback)


def _graphml(snapshot: Snapshot, to: str) -> list[str]:
    tables = {name: snapshot.table(name) for name in ("entities", "relations", "communities", "claims")}
    with Path(to).open("wb") as stream:
        write_graphml(tables, stream)
    return [to]


def _parquet(snapshot: Snapshot, to: str) -> list[str]:
    names = ("documents", "chunks", "entities", "relations", "communities", "reports", "claims", *METADATA_TABLES)
    tables: dict[str, pa.Table] = {name: snapshot.table(name) for name in names}
    folder = Path(to)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, table in graphrag_tables(tables, snapshot.manifest.created_at[:10]).items():
        file = folder / f"{name}.parquet"
        pq.write_table(table, file)
        written.append(str(file))
    return written
