"""Lines about the update that made a snapshot, from the note in its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hirag_dist.cli._output import short
from hirag_dist.core.text.normalize import count_noun

_KINDS = {"summaries": ("summary", "summaries"), "reports": ("report", "reports")}


def update_line(number: int, documents: Mapping[str, int], others: Sequence[str] = ()) -> str:
    """Return the number of the update and how many documents it changed, as a sentence.

    Args:
        others: names of what else changed, where no document was added, changed or removed.

    >>> update_line(3, {"added": 2, "changed": 0, "removed": 1})
    'Update 3 since the index was built from nothing: 2 documents added, 1 removed.'
    >>> update_line(4, {"added": 0, "changed": 0, "removed": 0}, ["places", "metadata"])
    'Update 4 since the index was built from nothing: places and metadata of documents changed, their texts did not.'
    """
    if not number:
        return "The index was built from nothing; no update was made since."
    parts = [f"{count:,} {what}" for what, count in documents.items() if count]
    if parts:
        first, rest = parts[0].split(" ", 1)
        parts[0] = f"{first} {'document' if first == '1' else 'documents'} {rest}"
    rest = f"{' and '.join(others)} of documents changed, their texts did not" if others else "no document changed"
    said = ", ".join(parts) or rest
    return f"Update {number} since the index was built from nothing: {said}."


def clustered_line(note: Mapping[str, Any]) -> str:
    """Return the embedder that the hierarchy was made with, where the vectors are another's, as a sentence; else "".

    Args:
        note: `notes["update"]` of the manifest.
    """
    name = note.get("clustered_with")
    if not name:
        return ""
    return (
        f"The vectors were made anew; clusters and summaries were made with those of {name}: updates and "
        "`hirag-dist refresh` make again what has become loose, `index --rebuild` all."
    )


def missing_line(missing: int) -> str:
    """Return the number of reports that are not written, as a sentence.

    >>> missing_line(1)
    'Reports: 1 is left out (communities.report_share); `hirag-dist refresh --reports` writes it.'
    """
    verb, them = ("is", "it") if missing == 1 else ("are", "them")
    return (
        f"Reports: {missing:,} {verb} left out (communities.report_share); "
        f"`hirag-dist refresh --reports` writes {them}."
    )


def debt_line(note: Mapping[str, Any]) -> str:
    """Return the debt of a snapshot as a sentence.

    Args:
        note: `notes["update"]` of its manifest.

    >>> debt_line({"debt": {"summaries": {"units": 2, "tokens": 5300}, "reports": {"units": 0, "tokens": 0}}})
    'Debt: 2 summaries are due, about 5.3k tokens; `hirag-dist refresh` pays it.'
    >>> debt_line({"debt": {}})
    'Debt: none.'
    """
    open_parts = {kind: part for kind, part in note.get("debt", {}).items() if part["units"]}
    if not open_parts:
        return "Debt: none."
    units = " and ".join(count_noun(part["units"], *_KINDS[kind]) for kind, part in open_parts.items())
    verb = "is" if sum(part["units"] for part in open_parts.values()) == 1 else "are"
    tokens = short(sum(part["tokens"] for part in open_parts.values()))
    return f"Debt: {units} {verb} due, about {tokens} tokens; `hirag-dist refresh` pays it."
