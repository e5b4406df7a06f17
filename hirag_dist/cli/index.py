"""`hirag-dist index`: build and publish a snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from hirag_dist.api.build import build_index
from hirag_dist.cli._build import conclude
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
    WaitOption,
    WorkersOption,
    configuration,
    running,
)
from hirag_dist.cli._output import use_json
from hirag_dist.cli._progress import ProgressBars


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
    id_field: Annotated[str | None, typer.Option(help="Field with the user's id of a record, for `eval`.")] = None,
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    batch: BatchOption = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run finished stages again; paid replies are kept.")] = False,
    require_complete: Annotated[bool, typer.Option(help="Publish nothing while there are dead letters.")] = False,
    wait: WaitOption = 0.0,
    make_current: MakeCurrentOption = False,
    json: JsonOption = False,
) -> None:
    """Build an index of INPUT and publish it; after an interruption, the same command continues."""
    use_json(json)
    loaded = configuration(
        config,
        settings,
        running(executor, workers, batch)
        | {
            "reading.text_field": text_field,
            "reading.title_field": title_field,
            "reading.label_field": label_field,
            "reading.id_field": id_field,
        },
    ).config
    with ProgressBars(not json) as bars:
        result = build_index(
            inputs,
            index,
            config=loaded,
            max_usd=max_usd,
            max_tokens=max_tokens,
            fresh=fresh,
            require_complete=require_complete,
            wait_s=wait,
            make_current=make_current,
            progress=bars,
        )
    conclude(result, json)
