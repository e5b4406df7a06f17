"""`hirag-dist refresh`: summaries and reports that updates have put off."""

from __future__ import annotations

from typing import Annotated

import typer

from hirag_dist.api.update import refresh_index
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import IndexOption, WriteOptions
from hirag_dist.cli._progress import ProgressBars


def refresh(
    index: IndexOption,
    options: WriteOptions,
    all_reports: Annotated[
        bool, typer.Option("--reports", help="Write the reports too that communities.report_share leaves out.")
    ] = False,
) -> None:
    """Write the summaries and reports that updates have put off, and publish a new snapshot.

    `status` shows how many are due. With --max-usd or --max-tokens, the oldest and most stale texts that fit are
    written, and the rest stays due. --max-usd uses the price of the replies of the last build. No document changes.
    """
    loaded = options.load()
    with ProgressBars(not options.json) as bars:
        result = refresh_index(index, all_reports=all_reports, config=loaded, progress=bars, **options.limits)
    conclude(result, options.json)
