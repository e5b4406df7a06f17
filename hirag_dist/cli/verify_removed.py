"""`hirag-dist verify-removed`: what still derives from removed documents."""

from __future__ import annotations

from typing import Annotated

import typer

from hirag_dist.cli._options import ConfigOption, IndexOption, JsonOption, SetOption, configuration
from hirag_dist.cli._output import emit, out, table, use_json
from hirag_dist.composition.removal.evidence import find_removed
from hirag_dist.composition.removal.given import read_given
from hirag_dist.composition.removal.verification import VerificationResult, verify_removed
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import InputError, SnapshotNotFound
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store

FOUND_CODE = 6


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify-removed")(verify_removed_command)


def verify_removed_command(
    index: IndexOption,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Document ids, or the source ids of their owner.")
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="FILE", help="The removed documents, where no snapshot has them any more."),
    ] = None,
    snapshot_only: Annotated[
        bool, typer.Option("--snapshot-only", help="Search the current snapshot alone, as `remove` promises.")
    ] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Search everything in an index for what derives from removed documents. Makes no call.

    The exit code is 0 only if every place was read and nothing was found, and 6 if something was.
    """
    use_json(json)
    if not ids and not input:
        raise InputError("name the documents: their ids, or files with their text (--input FILE)")
    store = Store(index)
    if current_id(store) is None:
        raise SnapshotNotFound(f"{store.uri} serves no snapshot")
    loaded = configuration(config, settings).config
    given = read_given(loaded, store, input) if input else None
    removed = find_removed(store, ids or [], given)
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
