"""Updates of an index from Python, without the rest of its documents at hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

from hirag_dist.api.build_keywords import BuildKeywords, Inputs, input_names, run_with
from hirag_dist.application.build import refresh_within, run_add, run_reembed, run_remove
from hirag_dist.application.index_result import IndexResult
from hirag_dist.indexing.update.documents import DocumentSelection


def add_documents(inputs: Inputs, index: str | Path, **options: Unpack[BuildKeywords]) -> IndexResult:
    """Add documents to an index and publish a snapshot with them.

    A document of the same place (path and record) as one of the index, with another text, replaces it; all others of
    the index stay.

    Args:
        inputs: files, folders, globs and object-store URIs; one or several.
        index: folder or object-store URI of the index.
        options: as `build_index`.

    Raises:
        SnapshotError: there is no index, or none that can be updated.
        HiragError: see `build_index`.
    """
    return run_with(
        options, lambda config, build, listeners: run_add(input_names(inputs), str(index), config, build, listeners)
    )


async def add_documents_async(inputs: Inputs, index: str | Path, **options: Unpack[BuildKeywords]) -> IndexResult:
    """Add documents in a thread of the running event loop; arguments and errors as `add_documents`."""
    return await asyncio.to_thread(add_documents, inputs, index, **options)


def remove_documents(
    ids: Iterable[str], index: str | Path, *, sources: Iterable[str] = (), **options: Unpack[BuildKeywords]
) -> IndexResult:
    """Remove documents from an index and publish a snapshot in which nothing derives from them.

    Args:
        ids: document ids, or the owner's ids of records.
        index: folder or object-store URI of the index.
        sources: glob patterns of the documents' paths, such as `reports/2019/*`.
        options: as `build_index`.

    Raises:
        InputError: an id or pattern names no document of the index, or all documents are named.
        SnapshotError: there is no index, or none that can be updated.
        HiragError: see `build_index`.
    """
    if isinstance(ids, str):
        raise TypeError(f"ids is a list of ids, not a string: [{ids!r}]")
    selection = DocumentSelection(tuple(ids), tuple(sources))
    return run_with(
        options, lambda config, build, listeners: run_remove(selection, str(index), config, build, listeners)
    )


async def remove_documents_async(
    ids: Iterable[str], index: str | Path, *, sources: Iterable[str] = (), **options: Unpack[BuildKeywords]
) -> IndexResult:
    """Remove documents in a thread of the running event loop; arguments and errors as `remove_documents`."""
    return await asyncio.to_thread(remove_documents, ids, index, sources=sources, **options)


def refresh_index(index: str | Path, *, all_reports: bool = False, **options: Unpack[BuildKeywords]) -> IndexResult:
    """Write the summaries and reports that updates have put off, and publish a snapshot with them.

    Args:
        index: folder or object-store URI of the index.
        all_reports: write reports too that `communities.report_share` leaves out.
        options: as `build_index`, except that `max_tokens` and `max_usd` choose what is written: the oldest and most
            stale texts that fit, about; the rest stays due.

    Raises:
        SnapshotError: there is no index, or none that can be updated.
        ConfigError: `max_usd` is given, and no price of the replies is known.
        HiragError: see `build_index`.
    """
    return run_with(
        options, lambda config, build, listeners: refresh_within(str(index), config, build, listeners, all_reports)
    )


async def refresh_index_async(
    index: str | Path, *, all_reports: bool = False, **options: Unpack[BuildKeywords]
) -> IndexResult:
    """Refresh an index in a thread of the running event loop; arguments and errors as `refresh_index`."""
    return await asyncio.to_thread(refresh_index, index, all_reports=all_reports, **options)


def reembed_index(index: str | Path, **options: Unpack[BuildKeywords]) -> IndexResult:
    """Make the vectors of an index with the configured embedder and publish a snapshot with them; no chat call is made.

    Documents, entities, clusters, summaries, communities and reports stay as they are; `plan_reembedding` estimates the
    cost. Where the embedder is that of the index, nothing is done.

    Args:
        index: folder or object-store URI of the index.
        options: as `build_index`; the configuration names the new embedder.

    Raises:
        SnapshotError: there is no index, or none that can be updated.
        HiragError: see `build_index`.
    """
    return run_with(options, lambda config, build, listeners: run_reembed(str(index), config, build, listeners))


async def reembed_index_async(index: str | Path, **options: Unpack[BuildKeywords]) -> IndexResult:
    """Make new vectors in a thread of the running event loop; arguments and errors as `reembed_index`."""
    return await asyncio.to_thread(reembed_index, index, **options)
