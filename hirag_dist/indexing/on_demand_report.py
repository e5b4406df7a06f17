"""The material of one community's report, from a mapped snapshot: what a build would write it from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.reports.selection import ReportOutlines, report_outlines
from hirag_dist.execution.stage import Services, Tables
from hirag_dist.indexing.layers import DESCRIPTION_CHARS
from hirag_dist.indexing.stages.report import CHILD_REPORTS, WriteReports
from hirag_dist.indexing.stages.report_text import (
    ENTITY_CHUNKS,
    ENTITY_TEXTS,
    RELATION_TEXTS,
    ClaimLines,
    EntityLines,
    RelationLines,
)
from hirag_dist.schemas import CLAIMS, COMMUNITIES
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.storage.snapshot.late_reports import LateReportFiles
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import IntVector

_MAX_CLAIMS = 10_000  # about the members that a report shows


@dataclass(frozen=True)
class CommunityTables:
    """Tables that one report is written from.

    Attributes:
        outlines: OUTLINES of the community alone.
        places: ENTITY_PLACES and RELATION_PLACES of what it shows.
        entities, relations, claims: ENTITY_TEXTS with chunk_ids, RELATION_TEXTS and CLAIMS of these.
        children: CHILD_REPORTS of the sub-communities that have a report.
    """

    outlines: pa.Table
    places: tuple[pa.Table, pa.Table]
    entities: pa.Table
    relations: pa.Table
    claims: pa.Table
    children: pa.Table


def community_tables(
    index: MappedIndex, snapshot: Snapshot, files: LateReportFiles, row: int, max_lines: int
) -> CommunityTables:
    """Return the tables of a community, from all of its texts.

    The choice of what is shown is that of a build, made within the community: members by their neighbours in the
    whole graph, relations by weight, ties by row.

    Args:
        index: unfiltered.
        files: late reports of the snapshot, which stand in for members as published ones do.
        row: of the community.
        max_lines: members, and relations, that a report can show at most.
    """
    communities = index.communities
    own, level = index.community_id(row), int(communities.levels[row])
    members = _members(index, row)
    below = np.unique(_communities_of(index, members))
    children = below[communities.levels[below] == level + 1]
    inside = np.zeros(len(index.layers), np.bool_)
    inside[members] = True
    links = np.flatnonzero(inside[index.ends].all(axis=1))
    relations = _relations(index, links)
    outlines = report_outlines(
        _as_communities(index, row, children),
        pa.chunked_array([_ids(index, members)]),
        relations.select(["relation_id", "source_id", "target_id", "weight"]),
        np.diff(index.graph.indptr)[members].astype(np.int64),
        max_lines,
        max_tree=len(children) + 1,
    )
    outline = _own_outline(outlines, own, level)
    places = tuple(
        pa.table([pa.array([own] * each.num_rows, pa.string()), *each.columns[1:]], schema=each.schema)
        for each in (outlines.entities, outlines.relations)
    )
    shown = members[pc.is_in(_ids(index, members), value_set=_one(places[0]["entity_id"])).to_numpy(False)]
    return CommunityTables(
        outline,
        (places[0], places[1]),
        _entities(index, shown),
        relations,
        _claims(index, shown),
        _child_reports(index, snapshot, files, own, children),
    )


async def write_community_report(
    stage: WriteReports, tables: CommunityTables, services: Services
) -> tuple[dict[str, Any] | None, str]:
    """Return the report of one community as a row of REPORTS, or None and why the model's reply cannot be used.

    Raises:
        ModelError: no model answers.
        StoreError: the reply could not be stored.
    """
    entities, relations = tables.places
    texts = tables.entities.select(ENTITY_TEXTS.names)
    inputs: dict[str, pa.Table] = {
        "outlines": tables.outlines,
        "entities": (await EntityLines(DESCRIPTION_CHARS).run({"places": entities, "entities": texts}, services))[
            "lines"
        ],
        "relations": (
            await RelationLines(DESCRIPTION_CHARS).run({"places": relations, "relations": tables.relations}, services)
        )["lines"],
        "children": tables.children,
    }
    if tables.claims.num_rows:
        chunks = tables.entities.select(ENTITY_CHUNKS.names)
        given = {"places": entities, "entities": chunks, "claims": tables.claims}
        inputs["claims"] = (await ClaimLines(DESCRIPTION_CHARS).run(given, services))["lines"]
    found: Tables = await stage.run(inputs, services)
    if found["reports"].num_rows:
        return found["reports"].to_pylist()[0], ""
    return None, found["rejects"]["reason"][0].as_py()


def _members(index: MappedIndex, row: int) -> IntVector:
    communities = index.communities
    return communities.members[communities.indptr[row] : communities.indptr[row + 1]].astype(np.int64)


def _communities_of(index: MappedIndex, entities: IntVector) -> IntVector:
    communities = index.communities
    spans = [communities.of[communities.of_indptr[row] : communities.of_indptr[row + 1]] for row in entities.tolist()]
    return np.concatenate([np.zeros(0, np.int64), *spans]).astype(np.int64)


def _as_communities(index: MappedIndex, row: int, children: IntVector) -> pa.Table:
    """Return COMMUNITIES of a community, as of level 0, and its sub-communities."""
    own = index.community_id(row)
    rows = []
    for at in (row, *children.tolist()):
        ids = _ids(index, _members(index, at)).to_pylist()
        is_child = at != row
        rows.append(
            {
                "community_id": index.community_id(at),
                "level": int(is_child),
                "parent_id": own if is_child else None,
                "is_leaf": is_child or not len(children),
                "n_entities": len(ids),
                "n_relations": 0,
                "entity_ids": ids,
            }
        )
    return pa.Table.from_pylist(rows, COMMUNITIES)


def _own_outline(outlines: ReportOutlines, own: str, level: int) -> pa.Table:
    whole = pa.concat_tables([outlines.below, outlines.above])
    outline = whole.filter(pc.equal(whole["community_id"], own))
    values = {"tree": own, "level": level, "parent_tree": None}
    for name, value in values.items():
        field = outline.schema.field(name)
        outline = outline.set_column(outline.schema.get_field_index(name), field, pa.array([value], field.type))
    return outline


def _entities(index: MappedIndex, rows: IntVector) -> pa.Table:
    """Return ENTITY_TEXTS of entities with their chunk_ids, which only claims need."""
    walk, listed = index.walk_graph, rows.tolist()
    names = ("entity_id", "name", "type", "description")
    columns = [pa.array(index.files.entities.values(name, listed), pa.string()) for name in names]
    has_claims = index.files.claims is not None
    chunks = [
        index.files.chunks.values(
            "chunk_id", walk.entity_chunks[walk.entity_indptr[row] : walk.entity_indptr[row + 1]].tolist()
        )
        if has_claims
        else []
        for row in listed
    ]
    chunk_ids = pa.array(chunks, ENTITY_CHUNKS.field("chunk_ids").type)
    return pa.table([*columns, chunk_ids], schema=pa.schema([*ENTITY_TEXTS, ENTITY_CHUNKS.field("chunk_ids")]))


def _relations(index: MappedIndex, rows: IntVector) -> pa.Table:
    """Return RELATION_TEXTS of relations."""
    sources, targets = index.ends[rows].T
    return pa.table(
        [
            pa.array(index.files.relations.values("relation_id", rows.tolist()), pa.string()),
            _ids(index, sources),
            _ids(index, targets),
            pa.array(index.files.relations.values("description", rows.tolist()), pa.string()),
            pa.array(index.weights[rows], RELATION_TEXTS.field("weight").type),
        ],
        schema=RELATION_TEXTS,
    )


def _claims(index: MappedIndex, rows: IntVector) -> pa.Table:
    if index.files.claims is None:
        return CLAIMS.empty_table()
    about = index.files.claims.about(rows.tolist(), None, _MAX_CLAIMS)
    found = [asdict(claim) for claim in index.files.claims.items(about, None)]
    return pa.Table.from_pylist(found, CLAIMS)


def _child_reports(
    index: MappedIndex, snapshot: Snapshot, files: LateReportFiles, tree: str, children: IntVector
) -> pa.Table:
    """Return CHILD_REPORTS of the sub-communities that have a report, published or late."""
    rows = []
    for at in children.tolist():
        published, own = int(index.files.report_rows[at]), index.community_id(at)
        report: dict[str, Any] | None = None
        if published >= 0:
            path = f"{snapshot.folder}/reports.parquet"
            columns = ["community_id", "title", "summary"]
            (report,) = snapshot.store.read_rows(path, published, published + 1, columns).to_pylist()
        elif (late := files.read(own)) is not None:
            report = dict(late.report)
        if report is not None:
            rows.append({"tree": tree, **{name: report[name] for name in CHILD_REPORTS.names[1:]}})
    return pa.Table.from_pylist(rows, CHILD_REPORTS)


def _ids(index: MappedIndex, rows: IntVector) -> pa.Array:
    return pa.array(index.files.entities.values("entity_id", rows.tolist()), pa.string())


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pc.unique(column)
