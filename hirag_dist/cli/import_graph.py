"""`hirag-dist import`: another tool's working folder becomes a snapshot."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import typer

from hirag_dist.cli._build import BuildOptions, build, conclude, summary
from hirag_dist.cli._build_records import BuildArguments
from hirag_dist.cli._options import (
    BatchOption,
    ConfigOption,
    ExecutorOption,
    IndexOption,
    JsonOption,
    MakeCurrentOption,
    MaxTokensOption,
    MaxUsdOption,
    SetOption,
    WorkersOption,
    configuration,
    running,
)
from hirag_dist.cli._output import err, use_json
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.core.text.tokens import counter
from hirag_dist.interop.importers import read_working_folder
from hirag_dist.storage.store import Store

Communities = Literal["new", "keep"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import")(import_graph)


def import_graph(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Of GraphRAG, LightRAG, nano-graphrag or HiRAG.")],
    index: IndexOption,
    config: ConfigOption = None,
    settings: SetOption = None,
    executor: ExecutorOption = None,
    workers: WorkersOption = None,
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    batch: BatchOption = False,
    communities: Annotated[
        Communities,
        typer.Option(help="new: found over all layers, reports written; keep: the folder's, and its reports."),
    ] = "new",
    make_current: MakeCurrentOption = False,
    json: JsonOption = False,
) -> None:
    """Take over a graph that another tool extracted, build the hierarchy on it, and publish a snapshot."""
    use_json(json)
    loaded = configuration(config, settings, running(executor, workers, batch)).config
    started = time.perf_counter()
    graph = read_working_folder(folder, counter(loaded.tokenizer), communities == "keep")
    if not json:
        err.print(
            f"{folder} is of kind {graph.kind}: {count_noun(graph.entities.num_rows, 'entity', 'entities')}, "
            f"{count_noun(graph.relations.num_rows, 'relation')}, {count_noun(graph.chunks.num_rows, 'chunk')}, "
            f"{count_noun(graph.claims.num_rows, 'claim')}."
        )
    store = Store(index)
    given = BuildArguments.imported(folder, graph.left_out, loaded, communities)
    order = BuildOptions("import", given, max_usd, max_tokens, forward=make_current)
    result, sent = build(loaded, store, order, lambda made: made.index_graph(graph), bars=not json)
    conclude(summary(store, result, sent, time.perf_counter() - started), json)
