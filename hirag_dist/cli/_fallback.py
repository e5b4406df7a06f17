"""Exit code of commands that read an index whose current snapshot is damaged."""

from __future__ import annotations

import typer

FALLBACK_CODE = 3


def conclude_reading(fallback: str) -> None:
    """Exit with 3 if another snapshot was read in place of the current one; the log has said why.

    Args:
        fallback: of the snapshot.
    """
    if fallback:
        raise typer.Exit(FALLBACK_CODE)
