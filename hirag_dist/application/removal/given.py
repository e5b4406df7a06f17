"""Documents read from files, for the verification of documents that no snapshot has any more."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hirag_dist.application.stored_replies import offline_context
from hirag_dist.composition.windows import cut_as_index
from hirag_dist.config.model import Config
from hirag_dist.indexing.context import ResolvedModels
from hirag_dist.indexing.documents import read_documents
from hirag_dist.llm.replay import NoVectors, ReadOnlyLedger
from hirag_dist.storage.store import Store


def read_given(config: Config, store: Store, inputs: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return DOCUMENTS and CHUNKS of files, with the ids that a build gives them.

    Args:
        config: decides how files are read and chunked.
        store: the index.
        inputs: files, folders, globs and object-store URIs.

    Raises:
        InputError: there is nothing to read.
    """
    models = ResolvedModels({}, {}, "", 1, "")
    with offline_context(cut_as_index(config, store), models, ReadOnlyLedger(store), NoVectors("", 1)) as context:
        read = read_documents(context, inputs)
        return context.datasets.read(read.documents), context.datasets.read(read.chunks)
