"""`hirag-dist index`: build or update an index and publish a snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from hirag_dist.api.build import build_index
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import FieldOptions, FreshOption, IndexOption, InputsArgument, WriteOptions
from hirag_dist.cli._progress import ProgressBars


def index(
    inputs: InputsArgument,
    index: IndexOption,
    fields: FieldOptions,
    options: WriteOptions,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Build an index that exists from nothing; stored replies are not paid again."),
    ] = False,
    fresh: FreshOption = False,
) -> None:
    """Build an index of INPUT and publish it; after an interruption, the same command continues.

    An index that exists is updated: the documents of INPUT are compared by content with those of the index; new and
    changed ones are extracted, those that are gone from INPUT are removed, and only what they reach is made again.
    Entities, clusters, communities and reports that did not change keep their ids and texts. --rebuild makes all of
    them from nothing, and ids of clusters and communities may change. See also add, remove and refresh.
    """
    loaded = options.load(fields.keys)
    with ProgressBars(not options.json) as bars:
        result = build_index(
            inputs, index, rebuild=rebuild, fresh=fresh, config=loaded, progress=bars, **options.limits
        )
    conclude(result, options.json)
