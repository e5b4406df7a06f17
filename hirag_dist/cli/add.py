"""`hirag-dist add`: documents added to an index."""

from __future__ import annotations

from typing import Annotated

import typer

from hirag_dist.api.update import add_documents
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import (
    ConfigOption,
    ExecutorOption,
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
    app.command("add")(add)


def add(
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
    require_complete: RequireCompleteOption = False,
    wait: WaitOption = 0.0,
    make_current: MakeCurrentOption = False,
    json: JsonOption = False,
) -> None:
    """Add the documents of INPUT to an index and publish it; the documents that it has stay.

    A document of the same path and record as one of the index, with another text, replaces it. The path is relative to
    the INPUT argument that it was found below: give the folder that `index` was given, or one laid out like it.
    """
    use_json(json)
    fields = reading(text_field, title_field, label_field, id_field)
    loaded = configuration(config, settings, running(executor, workers) | fields).config
    with ProgressBars(not json) as bars:
        result = add_documents(
            inputs,
            index,
            config=loaded,
            max_usd=max_usd,
            max_tokens=max_tokens,
            require_complete=require_complete,
            wait_s=wait,
            make_current=make_current,
            progress=bars,
        )
    conclude(result, json)
