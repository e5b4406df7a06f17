"""Tables of a snapshot → the tree of its communities with their reports, as a page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from hirag_dist.core.graph.csr import relation_ends, rows_of
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.inspection.model import simple_graph

MAX_COMMUNITIES = 2_000
MAX_FULL = 300  # largest communities that are shown with the findings of their reports
_MAX_MEMBERS = 12
_MAX_FINDINGS = 6
_NAME_CHARS, _TEXT_CHARS = 90, 700


@dataclass(slots=True)
class OutlineNode:
    """A community.

    Attributes:
        title: Title of its report; names of members where it has none.
        rating: Rating of its report; None without a report.
        findings: (summary, explanation) of each finding.
        members: Names of its entities with most neighbours.
        children: Its sub-communities, the largest first.
    """

    title: str
    entities: int
    relations: int
    rating: float | None
    summary: str
    findings: Sequence[tuple[str, str]]
    members: Sequence[str]
    children: list[OutlineNode] = field(default_factory=list)


def outline(tables: Mapping[str, pa.Table], max_communities: int = MAX_COMMUNITIES) -> list[OutlineNode]:
    """Return the communities of the coarsest level, the largest first, each with its sub-communities.

    Args:
        tables: entities, relations, communities and reports.
        max_communities: Number of communities that are kept, the largest ones. Those of one entity are left out.
    """
    entities, communities, reports = tables["entities"], tables["communities"], tables["reports"]
    ends = relation_ends(entities["entity_id"], tables["relations"])
    known = (ends[0] >= 0) & (ends[1] >= 0)
    degrees = simple_graph(ends[0][known], ends[1][known], entities.num_rows).degrees
    sizes = communities["n_entities"].to_numpy()
    order = np.lexsort((np.arange(len(sizes)), communities["level"].to_numpy(), -sizes))  # a parent before its children
    order = order[sizes[order] > 1][:max_communities]
    kept = communities.take(pa.array(order))
    report_at = rows_of(kept["community_id"], reports["community_id"]).tolist()
    lists = kept["entity_ids"].combine_chunks()
    flat = rows_of(pa.chunked_array([lists.flatten()]), entities["entity_id"])
    bounds = np.concatenate([[0], np.cumsum(lists.value_lengths().to_numpy(zero_copy_only=False))])
    nodes: dict[str, OutlineNode] = {}
    roots: list[OutlineNode] = []
    columns = ["community_id", "parent_id", "n_entities", "n_relations"]
    for place, community in enumerate(kept.select(columns).to_pylist()):
        rows = flat[bounds[place] : bounds[place + 1]]
        rows = rows[rows >= 0]
        rows = rows[np.argsort(-degrees[rows], kind="stable")][:_MAX_MEMBERS]
        members = [shorten(one_line(entities["name"][at].as_py()), _NAME_CHARS) for at in rows.tolist()]
        report = reports.slice(report_at[place], 1).to_pylist()[0] if report_at[place] >= 0 else None
        node = OutlineNode(
            shorten(one_line(report["title"]), _NAME_CHARS) if report else f"{', '.join(members[:2])}, …",
            community["n_entities"],
            community["n_relations"],
            round(report["rating"], 1) if report else None,
            shorten(one_line(report["summary"]), _TEXT_CHARS) if report else "",
            [
                (shorten(one_line(item["summary"]), _TEXT_CHARS), shorten(one_line(item["explanation"]), _TEXT_CHARS))
                for item in (report["findings"][:_MAX_FINDINGS] if report and place < MAX_FULL else ())
            ],
            members,
        )
        nodes[community["community_id"]] = node
        parent = nodes.get(community["parent_id"] or "")
        (roots if parent is None else parent.children).append(node)
    return roots
