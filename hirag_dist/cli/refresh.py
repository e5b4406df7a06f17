"""`hirag-dist refresh`: summaries and reports that updates have put off."""

from __future__ import annotations

from typing import Annotated

import typer

from hirag_dist.api.update import refresh_index
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import (
    ConfigOption,
    ExecutorOption,
    IndexOption,
    JsonOption,
    MakeCurrentOption,
    RequireCompleteOption,
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
    app.command("refresh")(refresh)


def refresh(
    index: IndexOption,
    config: ConfigOption = None,
    settings: SetOption = None,
    executor: ExecutorOption = None,
    workers: WorkersOption = None,
    max_usd: Annotated[
        float | None, typer.Option(min=0, help="Approximate US dollars to spend on the texts that are due.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=0, help="Approximate tokens to spend on the texts that are due.")
    ] = None,
    all_reports: Annotated[
        bool, typer.Option("--reports", help="Write the reports too that communities.report_share leaves out.")
    ] = False,
    require_complete: RequireCompleteOption = False,
    wait: WaitOption = 0.0,
    make_current: MakeCurrentOption = False,
    json: JsonOption = False,
) -> None:
    """Write the summaries and reports that updates have put off, and publish a new snapshot.

    `status` shows how many are due. With a limit, the oldest and most stale ones are written, and the rest stays due.
    --max-usd uses the price of the replies of the last build. No document changes.
    """
    use_json(json)
    loaded = configuration(config, settings, running(executor, workers)).config
    with ProgressBars(not json) as bars:
        result = refresh_index(
            index,
            all_reports=all_reports,
            config=loaded,
            max_usd=max_usd,
            max_tokens=max_tokens,
            require_complete=require_complete,
            wait_s=wait,
            make_current=make_current,
            progress=bars,
        )
    conclude(result, json)
