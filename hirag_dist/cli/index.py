"""`hirag-dist index`, `add` and `refresh`: build or update an index and publish a snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from hirag_dist.api.build import add_documents, build_index, plan_reembedding, reembed_index, refresh_index
from hirag_dist.cli._bill import reembedding_line
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import (
    FieldOptions,
    FreshOption,
    IndexOption,
    InputsArgument,
    OptionalInputsArgument,
    WriteOptions,
    refuse_idle,
    required_inputs,
)
from hirag_dist.cli._output import err
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.execution.build_progress import PHASES


def index(
    index: IndexOption,
    fields: FieldOptions,
    options: WriteOptions,
    inputs: OptionalInputsArgument = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Build an index that exists from nothing; stored replies are not paid again."),
    ] = False,
    fresh: FreshOption = False,
    reembed: Annotated[
        bool,
        typer.Option("--reembed", help="Make new vectors with the configured embedder and keep everything else."),
    ] = False,
) -> None:
    """Build an index of INPUT and publish it; after an interruption, the same command continues.

    An index that exists is updated: the documents of INPUT are compared by content with those of the index; new and
    changed ones are extracted, those that are gone from INPUT are removed, and only what they reach is made again.
    Entities, clusters, communities and reports that did not change keep their ids and texts. --rebuild makes all of
    them from nothing, and ids of clusters and communities may change. See also add, remove and refresh.

    --reembed, without INPUT, is for another embedder: it makes the vectors of all texts of the index with it, without
    a chat call, and keeps documents, entities, clusters, summaries, communities and reports.
    """
    documents = required_inputs(inputs, reembed)
    loaded = options.load(fields.keys)
    if reembed:
        refuse_idle({"--rebuild": rebuild, "--fresh": fresh}, "--reembed", "it makes nothing but vectors")
        refuse_idle(fields.given, "--reembed", "no document is read")
        if not options.json:
            err.print(reembedding_line(plan_reembedding(index, config=loaded)))
    with ProgressBars(not options.json, phases=() if reembed else PHASES) as bars:
        if reembed:
            result = reembed_index(index, config=loaded, progress=bars, **options.limits)
        else:
            result = build_index(
                documents, index, rebuild=rebuild, fresh=fresh, config=loaded, progress=bars, **options.limits
            )
    conclude(result, options.json)


def add(inputs: InputsArgument, index: IndexOption, fields: FieldOptions, options: WriteOptions) -> None:
    """Add the documents of INPUT to an index and publish it; the documents that it has stay.

    A document of the same path and record as one of the index, with another text, replaces it. The path is relative to
    the INPUT argument that it was found below: give the folder that `index` was given, or one laid out like it.
    """
    loaded = options.load(fields.keys)
    with ProgressBars(not options.json) as bars:
        result = add_documents(inputs, index, config=loaded, progress=bars, **options.limits)
    conclude(result, options.json)


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
