"""Claims of a folder → CLAIMS, linked to the entities and chunks of the import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hirag_dist.core.text.ids import content_id, entity_id
from hirag_dist.core.text.normalize import clean_name, name_key, one_line
from hirag_dist.interop.importers.model import SourceClaim, SourceGraph, text_of
from hirag_dist.schemas import CLAIMS

_NOTHING = {"", "none", "null", "n/a", "nan"}  # what models write where there is nothing to tell


def told(value: object) -> str:
    """Return a value as one line of text; empty where it says that there is nothing.

    >>> told(" NONE "), told(None), told("1999-01-01T00:00:00")
    ('', '', '1999-01-01T00:00:00')
    """
    text = one_line(text_of(value))
    return "" if text.casefold() in _NOTHING else text


def claim_of(row: Mapping[str, Any], key: str, chunk_key: str) -> SourceClaim:
    """Return the record of a claim from its columns: GraphRAG's names, or this package's without `_id`."""
    subject, thing = (told(row.get(f"{end}_id") or row.get(end)) for end in ("subject", "object"))
    return SourceClaim(
        key,
        subject,
        thing,
        told(row.get("type")),
        told(row.get("status")).lower(),
        told(row.get("start_date")),
        told(row.get("end_date")),
        told(row.get("description")),
        told(row.get("source_text")),
        text_of(chunk_key),
    )


def claim_table(source: SourceGraph, entities: pa.Table, chunk_ids: Mapping[str, str]) -> pa.Table:
    """Return claims as a table; what could not be kept goes to `source.left_out`.

    A claim is about the entities of layer 0 whose names are its subject's and its object's. A name that no entity has
    stays a name: it was not extracted, so nothing is added to the graph for it.

    Args:
        source: the records of a folder.
        entities: ENTITIES of the import.
        chunk_ids: the id of each chunk by its key in the folder.
    """
    known = set(entities["entity_id"].to_pylist())
    rows: dict[str, dict[str, Any]] = {}
    for claim in source.claims:
        what = f"claim {claim.key}"
        if not claim.description:
            source.left_out.append((what, "it says nothing: its description is empty"))
            continue
        row = _row(claim, what, source, known, chunk_ids)
        if rows.setdefault(row["claim_id"], row) is not row:
            source.left_out.append((what, "another claim says the same of the same in the same chunk"))
    return pa.Table.from_pylist([rows[own] for own in sorted(rows)], CLAIMS)


def _row(
    claim: SourceClaim, what: str, source: SourceGraph, known: set[str], chunk_ids: Mapping[str, str]
) -> dict[str, Any]:
    chunk = chunk_ids.get(claim.chunk_key)
    if chunk is None:
        # as of mentions: where documents carry labels, its access labels are unknown
        chunk = content_id("unknown chunk", claim.chunk_key) if source.has_labels else ""
        source.left_out.append((f"chunk of {what}", f"not in the folder: {claim.chunk_key or 'none is named'}"))
    ends = (claim.subject, claim.object)
    ids = [entity_id(0, name_key(name)) if name_key(name) else "" for name in ends]
    said = (claim.type, claim.status, claim.start_date, claim.end_date, claim.description)
    return {
        "claim_id": content_id("claim", chunk, *map(name_key, ends), *said),
        "subject": clean_name(claim.subject),
        "object": clean_name(claim.object),
        "subject_id": ids[0] if ids[0] in known else None,
        "object_id": ids[1] if ids[1] in known else None,
        "type": claim.type,
        "status": claim.status,
        "start_date": claim.start_date,
        "end_date": claim.end_date,
        "description": claim.description,
        "source_text": claim.source_text,
        "chunk_id": chunk,
    }
