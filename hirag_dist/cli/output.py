"""What the command line prints: tables for people, one JSON object for machines, one line for an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
_state = {"json": False}


def use_json(wanted: bool) -> None:
    """Say whether stdout is for a machine."""
    _state["json"] = wanted


def emit(value: Any) -> None:
    """Print one JSON object."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def emit_error(message: str) -> None:
    """Print one clear line on stderr, and an object on stdout where a machine listens."""
    if _state["json"]:
        emit({"error": message})
    print(f"hirag-dist: {message}", file=sys.stderr)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()) -> Table:
    """Return a table for a terminal; `right` names the columns of numbers."""
    built = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for at, name in enumerate(columns):
        built.add_column(name, justify="right" if at in right else "left", header_style="dim", overflow="fold")
    for row in rows:
        built.add_row(*(_cell(value) for value in row))
    return built


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value).replace("[", "\\[")


def dollars(value: float) -> str:
    """Return an amount.

    >>> dollars(0.00123)
    '$0.0012'
    """
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.4f}"
