"""`hirag-dist index`: build or update an index and publish a snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from hirag_dist.api.build import build_index
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import (
    ConfigOption,
    ExecutorOption,
    FreshOption,
    IdFieldOption,
    IndexOption,
    JsonOption,
    LabelFieldOption,
    MakeCurrentOption,
    MaxTokensOption,
    MaxUsdOption,
    RequireCompleteOption,
    SetOption,
    TextFieldOption,
    TitleFieldOption,
    WaitOption,
    WorkersOption,
    configuration,
    reading,
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
    text_field: TextFieldOption = None,
    title_field: TitleFieldOption = None,
    label_field: LabelFieldOption = None,
    id_field: IdFieldOption = None,
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Build an index that exists from nothing; stored replies are not paid again."),
    ] = False,
    fresh: FreshOption = False,
    require_complete: RequireCompleteOption = False,
    wait: WaitOption = 0.0,
    make_current: MakeCurrentOption = False,
    json: JsonOption = False,
) -> None:
    """Build an index of INPUT and publish it; after an interruption, the same command continues.

    An index that exists is updated: the documents of INPUT are compared by content with those of the index; new and
    changed ones are extracted, those that are gone from INPUT are removed, and only what they reach is made again.
    Entities, clusters, communities and reports that did not change keep their ids and texts. --rebuild makes all of
    them from nothing, and ids of clusters and communities may change. See also add, remove and refresh.
    """
    use_json(json)
    fields = reading(text_field, title_field, label_field, id_field)
    loaded = configuration(config, settings, running(executor, workers) | fields).config
    with ProgressBars(not json) as bars:
        result = build_index(
            inputs,
            index,
            rebuild=rebuild,
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
