"""Communities, reports and claims of a folder → COMMUNITIES, REPORTS and CLAIMS of the entities of the import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from hirag_dist.core.text.ids import content_id, entity_id
from hirag_dist.core.text.normalize import clean_name, count_noun, name_key, one_line
from hirag_dist.interop.importers.model import (
    SourceClaim,
    SourceCommunity,
    SourceGraph,
    SourceReport,
    number_of,
    parsed,
    text_of,
)
from hirag_dist.schemas import CLAIMS, COMMUNITIES, REPORTS

IMPORTED = "imported"  # the origin of a report that another tool paid for


def report_of(key: str, row: Mapping[str, Any], title: str = "") -> SourceReport | None:
    """Return a report from its columns, by the names that any of these tools uses; None where it says nothing."""
    found = SourceReport(
        key,
        one_line(text_of(row.get("title"))) or title,
        text_of(row.get("summary")).strip(),
        min(
            max(next((n for name in ("rank", "rating") if (n := number_of(row.get(name))) is not None), 0.0), 0.0), 10.0
        ),
        text_of(row.get("rating_explanation") or row.get("rank_explanation")).strip(),
        tuple(_findings(row.get("findings"))),
    )
    return found if found.summary or found.findings else None


def _findings(value: object) -> Iterator[tuple[str, str]]:
    """Yield (summary, explanation); a finding may be a text, and all of them a JSON text."""
    items = parsed(value) if isinstance(value, str) else value
    for item in items if isinstance(items, Sequence) and not isinstance(items, str) else ():
        if isinstance(item, Mapping):
            parts = tuple(text_of(item.get(name)).strip() for name in ("summary", "explanation"))
        else:
            parts = (text_of(item).strip(), "")
        if any(parts):
            yield parts[0], parts[1]


def community_tables(source: SourceGraph, entities: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return communities and reports as tables; what could not be kept goes to `source.left_out`.

    An entity is in one community of a level at most: where names that the folder keeps apart are one entity here, it
    stays in the first. A community that the folder says no parent of has the one above that holds most of its members.

    Args:
        entities: ENTITIES of the import.
    """
    known = set(entities["entity_id"].to_pylist())
    homes: dict[tuple[int, str], str] = {}  # (level, entity) → community
    rows: dict[str, dict[str, Any]] = {}  # by the folder's key
    taken: dict[str, str] = {}
    for community in sorted(source.communities, key=lambda each: each.level):
        members = _members(community, source, known, homes)
        own = content_id("community", str(community.level), *members)
        if not members or own in taken:
            why = "none of its members is an entity" if not members else f"it holds the same as community {taken[own]}"
            source.left_out.append((f"community {community.key}", why))
            continue
        taken[own] = community.key
        homes |= {(community.level, member): community.key for member in members}
        parent = community.parent if community.parent in rows else _holder(community.level - 1, members, homes)
        rows[community.key] = {
            "community_id": own,
            "level": community.level,
            "parent_id": rows[parent]["community_id"] if parent else None,
            "is_leaf": True,
            "n_entities": len(members),
            "n_relations": 0,  # counted when the layers above are there
            "entity_ids": members,
        }
        if parent:
            rows[parent]["is_leaf"] = False
    order = sorted(rows.values(), key=lambda row: (row["level"], row["community_id"]))
    return pa.Table.from_pylist(order, COMMUNITIES), _report_table(source, rows)


def _members(
    community: SourceCommunity, source: SourceGraph, known: set[str], homes: Mapping[tuple[int, str], str]
) -> list[str]:
    members: set[str] = set()
    lacking: list[str] = []
    for name in community.names:
        own = entity_id(0, name_key(name))
        if own not in known:
            lacking.append(name)
        elif (community.level, own) in homes:
            other = homes[community.level, own]
            reason = f"the entity is in community {other} of the same level already"
            source.left_out.append((f"{name!r} in community {community.key}", reason))
        else:
            members.add(own)
    if lacking:
        shown = ", ".join(lacking[:3]) + ("…" if len(lacking) > 3 else "")
        reason = f"no entities of layer 0: {shown}"
        source.left_out.append((f"{count_noun(len(lacking), 'member')} of community {community.key}", reason))
    return sorted(members)


def _holder(level: int, members: Sequence[str], homes: Mapping[tuple[int, str], str]) -> str:
    held = Counter(homes[level, member] for member in members if (level, member) in homes)
    return held.most_common(1)[0][0] if held else ""


def _report_table(source: SourceGraph, communities: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    reports: dict[str, dict[str, Any]] = {}
    for report in source.reports:
        home = communities.get(report.key)
        if home is None:
            source.left_out.append((f"report of community {report.key}", "the import has no such community"))
        elif report.key in reports:
            source.left_out.append((f"report of community {report.key}", "the community has another one before it"))
        else:
            reports[report.key] = _report_row(report, home)
    for key in communities:
        if key not in reports:
            source.left_out.append((f"report of community {key}", "the folder holds none that says something"))
    order = sorted(reports.values(), key=lambda row: (row["level"], row["community_id"]))
    return pa.Table.from_pylist(order, REPORTS)


def _report_row(report: SourceReport, community: Mapping[str, Any]) -> dict[str, Any]:
    nothing: dict[str, list[str]] = {"entity_ids": [], "relation_ids": []}  # their references are numbers in the text
    return {
        "community_id": community["community_id"],
        "level": community["level"],
        "title": report.title,
        "summary": report.summary,
        "rating": report.rating,
        "rating_explanation": report.rating_explanation,
        "findings": [{"summary": said, "explanation": why} | nothing for said, why in report.findings],
        "origin": IMPORTED,
        "n_dropped_references": 0,
    }


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
        subject,
        thing,
        told(row.get("type")),
        told(row.get("status")).lower(),
        told(row.get("start_date")),
        told(row.get("end_date")),
        told(row.get("description")),
        told(row.get("source_text")),
        key,
        text_of(chunk_key),
    )


def claim_table(source: SourceGraph, entities: pa.Table, chunk_ids: Mapping[str, str]) -> pa.Table:
    """Return claims as a table; what could not be kept goes to `source.left_out`.

    A claim is about the entities of layer 0 whose names are its subject's and its object's. A name that no entity has
    stays a name: it was not extracted, so nothing is added to the graph for it.

    Args:
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
