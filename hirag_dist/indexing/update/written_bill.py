"""The bill of an index over all its updates: what was paid before is carried in the note of each update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hirag_dist.llm.usage import UsageMeter, usage_rows
from hirag_dist.storage.snapshot.reader import Snapshot

EARLIER_BILL: Final = "earlier_bill"  # in the note `update` of an updated snapshot: rows of USAGE, added up


def bill_rows(snapshot: Snapshot) -> list[dict[str, Any]] | None:
    """Return rows of USAGE since the index was built from nothing; None where what was paid before is not known."""
    note = snapshot.manifest.notes.get("update") or {}
    own = usage_rows(snapshot.table("usage"))
    if not int(note.get("number", 0)):
        return own
    earlier: Sequence[Mapping[str, Any]] | None = note.get(EARLIER_BILL)
    return None if earlier is None else added([*map(dict, earlier), *own])


def added(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of USAGE with those of one stage, role, model and endpoint added up."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        stages.setdefault(row["stage"], []).append(dict(row))
    return [
        {"stage": stage} | {name: value for name, value in row.items() if not name.startswith("sent_")}
        for stage, own in stages.items()
        for row in UsageMeter.from_rows(own).rows()
    ]
