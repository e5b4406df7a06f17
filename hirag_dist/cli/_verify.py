"""What still derives from removed documents, for `hirag-dist remove --verify`."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from hirag_dist.application.removal.evidence import find_removed
from hirag_dist.application.removal.given import read_given
from hirag_dist.application.removal.verification import VerificationResult, verify_removed
from hirag_dist.cli._output import emit, out, table
from hirag_dist.config.loader import LoadedConfig
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import InputError, SnapshotNotFound
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store

FOUND_CODE = 6


def verify(
    index: str, config: LoadedConfig, ids: Sequence[str], input: Sequence[str], *, snapshot_only: bool, json: bool
) -> None:
    """Search everything in an index for what derives from removed documents, and print it. Makes no call.

    Args:
        ids: Ids of the documents, or the source ids of their owner.
        input: Files with the texts of documents that no snapshot has any more.
        snapshot_only: Search the current snapshot alone, as `remove` promises.

    Raises:
        InputError: No document is named, or one is unknown and its text is not given.
        SnapshotNotFound: The index serves no snapshot.
        typer.Exit: With code 6, if something was found or a place could not be read.
    """
    if not ids and not input:
        raise InputError("name the documents: their ids, or files with their text (--input FILE)")
    store = Store(index)
    if current_id(store) is None:
        raise SnapshotNotFound(f"{store.uri} serves no snapshot")
    loaded = config.config
    given = read_given(loaded, store, list(input)) if input else None
    removed = find_removed(store, list(ids), given)
    if removed.unknown and not input:
        unknown = ", ".join(sorted(removed.unknown))
        raise InputError(
            f"no snapshot of {store.uri} has {unknown}, so its text is not known; give the document with --input FILE"
        )
    result = verify_removed(store, loaded, removed, snapshot_only=snapshot_only)
    if json:
        emit(result.to_dict())
    else:
        _show(result, "the current snapshot" if snapshot_only else store.uri)
    if not result.clean:
        raise typer.Exit(FOUND_CODE)


def _show(result: VerificationResult, where: str) -> None:
    rows = [(each.place, each.what, each.count, "; ".join(each.examples)) for each in result.findings]
    if rows:
        columns = ["place", "what", "count", "examples"]
        out.print(table("Derived from the removed documents", columns, rows, right=(2,), spare=(3,)))
    for problem in result.problems:
        out.print(f"Not searched: {problem}", markup=False)
    documents = count_noun(len(result.documents) or len(result.unknown), "document")
    if result.clean:
        out.print(f"Nothing in {where} derives from {documents}.", markup=False)
