"""`hirag-dist import`: another tool's working folder becomes a snapshot."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from hirag_dist.cli.index import build, conclude, summary
from hirag_dist.cli.options import ConfigOption, IndexOption, JsonOption, SetOption, configuration
from hirag_dist.cli.output import err, use_json
from hirag_dist.core.tokens import counter
from hirag_dist.importing import read_working_folder
from hirag_dist.index.store import Store


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import")(import_graph)


def import_graph(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Of GraphRAG, LightRAG, nano-graphrag or HiRAG.")],
    index: IndexOption,
    config: ConfigOption = None,
    settings: SetOption = None,
    executor: Annotated[str | None, typer.Option(help="ray or inline.")] = None,
    json: JsonOption = False,
) -> None:
    """Take over a graph that another tool extracted, build the hierarchy on it, and publish a snapshot."""
    use_json(json)
    loaded = configuration(config, settings, {"execution.executor": executor}).config
    started = time.perf_counter()
    graph = read_working_folder(folder, counter(loaded.tokenizer))
    if not json:
        err.print(
            f"{folder} is of kind {graph.kind}: {graph.entities.num_rows:,} entities, "
            f"{graph.relations.num_rows:,} relations, {graph.chunks.num_rows:,} chunks."
        )
    store = Store(index)
    result, sent = build(loaded, store, lambda made: made.index_graph(graph), bars=not json)
    conclude(summary(store, result, sent, time.perf_counter() - started), json)
