"""`hirag-dist add`: documents added to an index."""

from __future__ import annotations

from hirag_dist.api.update import add_documents
from hirag_dist.cli._build import conclude
from hirag_dist.cli._options import FieldOptions, IndexOption, InputsArgument, WriteOptions
from hirag_dist.cli._progress import ProgressBars


def add(inputs: InputsArgument, index: IndexOption, fields: FieldOptions, options: WriteOptions) -> None:
    """Add the documents of INPUT to an index and publish it; the documents that it has stay.

    A document of the same path and record as one of the index, with another text, replaces it. The path is relative to
    the INPUT argument that it was found below: give the folder that `index` was given, or one laid out like it.
    """
    loaded = options.load(fields.keys)
    with ProgressBars(not options.json) as bars:
        result = add_documents(inputs, index, config=loaded, progress=bars, **options.limits)
    conclude(result, options.json)
