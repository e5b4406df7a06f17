"""Tables of a snapshot → what is in it, in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.entities.resolution.scores import TIERS as RESOLUTION_TIERS
from hirag_dist.core.graph.bfs import hop_distances
from hirag_dist.core.graph.csr import build_graph, components, rows_of, subgraph
from hirag_dist.core.graph.hierarchy_metrics import Bfs, covered, path_lengths
from hirag_dist.errors import SchemaMismatch
from hirag_dist.inspection.model import (
    BillLine,
    GraphSummary,
    HubEntity,
    Inspection,
    LayerSummary,
    LevelSummary,
    ReportCover,
    ResolvedName,
    TierSummary,
    TypeCount,
    clustering,
)
from hirag_dist.llm.usage import total_cost, usage_rows
from hirag_dist.storage.snapshot.manifest import MISSING_REPORTS
from hirag_dist.types import CsrGraph, IntVector

TABLES = ("documents", "chunks", "entities", "relations", "clusters", "layers", "communities", "reports", "usage")

_HUBS = 20
_EXAMPLES = 5
_PROBLEMS = ("rejected", "rate_limited", "failed")
_SUMMED = ("calls", "ledger_hits", "input_tokens", "cached_tokens", "output_tokens", *_PROBLEMS)


def inspect_tables(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any], bfs: Bfs = hop_distances) -> Inspection:
    """Return the figures of an index.

    Args:
        tables: those named in `TABLES`, with the columns of `schemas`; `aliases` and `claims` too where there are any.
        manifest: `snapshot_id`, `created_at`, `complete` and `notes` are used, where they are there.
        bfs: what counts hops, as of `protocols.Kernels`.

    Raises:
        SchemaMismatch: a table is missing.
    """
    missing = [name for name in TABLES if name not in tables]
    if missing:
        raise SchemaMismatch(f"inspect needs the table(s) {', '.join(missing)}, which the snapshot does not have")
    entities, relations = tables["entities"], tables["relations"]
    graph = build_graph(entities["entity_id"], relations)
    base = np.flatnonzero(entities["layer"].to_numpy() == 0)
    base_graph = subgraph(graph, base)
    complete = manifest.get("complete")
    bill = bill_lines(tables["usage"])
    return Inspection(
        snapshot_id=str(manifest.get("snapshot_id") or ""),
        created_at=str(manifest.get("created_at") or ""),
        complete=None if complete is None else bool(complete),
        counts=_counts(tables),
        layers=layer_summaries(tables),
        entity_types=_types(entities),
        hubs=_hubs(entities, graph),
        base_graph=_graph_summary(base_graph),
        graph=_graph_summary(graph),
        paths=path_lengths(entities["chunk_ids"].take(pa.array(base)), base, base_graph, graph, bfs),
        levels=_levels(tables),
        reports=_cover(tables, manifest),
        resolved=_resolved(tables["aliases"]) if "aliases" in tables else (),
        bill=bill,
        total=added_lines("total", bill),
    )


def _counts(tables: Mapping[str, pa.Table]) -> dict[str, int]:
    counts = {name: tables[name].num_rows for name in TABLES if name not in ("usage", "clusters", "layers")}
    clusters = tables["clusters"]
    counts["clusters"] = int(pc.count_distinct(clusters["cluster_id"]).as_py()) if clusters.num_rows else 0
    counts["cluster_members"] = clusters.num_rows
    counts["layers"] = tables["layers"].num_rows
    for pair in pc.value_counts(tables["relations"]["kind"]).to_pylist():
        counts[f"relations.{pair['values']}"] = pair["counts"]
    if "claims" in tables and tables["claims"].num_rows:
        counts["claims"] = tables["claims"].num_rows
    counts["chunk_tokens"] = int(pc.sum(tables["chunks"]["n_tokens"]).as_py() or 0)
    return counts


def layer_summaries(tables: Mapping[str, pa.Table]) -> tuple[LayerSummary, ...]:
    """Return the layers from the lowest up, of the tables entities, relations and layers."""
    shares = dict(enumerate(covered(tables["entities"], tables["relations"])))
    return tuple(
        LayerSummary(
            layer=row["layer"],
            entities=row["n_entities"],
            clusters=row["n_clusters"],
            median_cluster=row["median_cluster"],
            largest_cluster=row["largest_cluster"],
            sparsity=_finite(row["sparsity"]),
            change_rate=_finite(row["change_rate"]),
            summaries=row["n_summaries"],
            attached=row["n_attached"],
            unattached=row["n_unattached"],
            covered=shares.get(row["layer"]),
            decision=row["decision"],
        )
        for row in tables["layers"].sort_by("layer").to_pylist()
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None  # JSON has no NaN


def _types(entities: pa.Table) -> tuple[TypeCount, ...]:
    pairs = pc.value_counts(entities["type"]).to_pylist()
    return tuple(
        TypeCount(pair["values"], pair["counts"])
        for pair in sorted(pairs, key=lambda pair: (-pair["counts"], pair["values"]))
    )


def _hubs(entities: pa.Table, graph: CsrGraph) -> tuple[HubEntity, ...]:
    degrees = np.diff(graph.indptr)
    rows = np.argsort(-degrees, kind="stable")[:_HUBS]
    rows = rows[degrees[rows] > 0]
    found = entities.select(["entity_id", "name", "type", "layer"]).take(pa.array(rows)).to_pylist()
    return tuple(HubEntity(**row, degree=int(degrees[at])) for row, at in zip(found, rows, strict=True))


def _graph_summary(graph: CsrGraph) -> GraphSummary:
    sizes = np.bincount(components(graph))
    n_nodes, n_edges = max(graph.n_nodes, 1), len(graph.indices) // 2
    return GraphSummary(
        entities=graph.n_nodes,
        edges=n_edges,
        mean_degree=2 * n_edges / n_nodes,
        components=len(sizes),
        largest_share=float(sizes.max(initial=0)) / n_nodes,
        isolated=int(np.sum(np.diff(graph.indptr) == 0)),
        clustering=clustering(graph),
    )


def _levels(tables: Mapping[str, pa.Table]) -> tuple[LevelSummary, ...]:
    communities, reports = tables["communities"], tables["reports"]
    n_entities = max(tables["entities"].num_rows, 1)
    report_rows = rows_of(communities["community_id"], reports["community_id"])
    levels = communities["level"].to_numpy()
    sizes = communities["n_entities"].to_numpy()
    leaves = communities["is_leaf"].combine_chunks().to_numpy(zero_copy_only=False)
    result = []
    for level in np.unique(levels):
        rows = np.flatnonzero(levels == level)
        covered = rows[report_rows[rows] >= 0]
        quantiles = np.quantile(sizes[rows], [0.0, 0.25, 0.5, 0.75, 1.0])
        result.append(
            LevelSummary(
                level=int(level),
                communities=len(rows),
                leaves=int(leaves[rows].sum()),
                sizes=(*(float(value) for value in quantiles),),  # type: ignore[arg-type]
                reports=len(covered),
                entities_covered=_n_members(communities, covered) / n_entities,
            )
        )
    return tuple(result)


def _n_members(communities: pa.Table, rows: IntVector) -> int:
    """Distinct entities in some communities."""
    members = communities["entity_ids"].take(pa.array(rows)).combine_chunks().flatten()
    return int(pc.count_distinct(members).as_py())


def _cover(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> ReportCover:
    communities, reports = tables["communities"], tables["reports"]
    rows = np.flatnonzero(rows_of(communities["community_id"], reports["community_id"]) >= 0)
    note = (manifest.get("notes") or {}).get(MISSING_REPORTS) or {}
    from_model = pc.sum(pc.equal(reports["origin"], "model")).as_py() or 0
    return ReportCover(
        communities=communities.num_rows,
        reports=reports.num_rows,
        from_model=int(from_model),
        communities_share=len(rows) / max(communities.num_rows, 1),
        entities_share=_n_members(communities, rows) / max(tables["entities"].num_rows, 1),
        missing=int(note.get("missing", 0)),
    )


def _resolved(aliases: pa.Table) -> tuple[TierSummary, ...]:
    columns = ["tier", "name", "canonical_name", "score", "evidence"]
    tiers: dict[str, list[ResolvedName]] = {}
    for row in aliases.select(columns).sort_by([("score", "descending"), ("name", "ascending")]).to_pylist():
        tiers.setdefault(row.pop("tier"), []).append(ResolvedName(**row))
    return tuple(
        TierSummary(tier, len(found), tuple(found[:: max(1, len(found) // _EXAMPLES)][:_EXAMPLES]))
        for tier, found in sorted(
            tiers.items(), key=lambda item: RESOLUTION_TIERS.index(item[0]) if item[0] in RESOLUTION_TIERS else -1
        )
    )


def bill_lines(usage: pa.Table) -> tuple[BillLine, ...]:
    """Return a line a stage, in the order of the table USAGE."""
    stages: dict[str, list[BillLine]] = {}
    for row in usage_rows(usage.drop_columns(["role"])):
        models, endpoints = ((name,) if name else () for name in (row.pop("model"), row.pop("endpoint")))
        stages.setdefault(row["stage"], []).append(BillLine(**row, models=models, endpoints=endpoints))
    return tuple(added_lines(stage, tuple(lines)) for stage, lines in stages.items())


def added_lines(name: str, lines: tuple[BillLine, ...]) -> BillLine:
    """Return the sums of lines as one."""
    return BillLine(
        stage=name,
        cost_usd=total_cost(line.cost_usd for line in lines),
        models=tuple(dict.fromkeys(model for line in lines for model in line.models)),
        endpoints=tuple(dict.fromkeys(endpoint for line in lines for endpoint in line.endpoints)),
        **{field: sum(getattr(line, field) for line in lines) for field in _SUMMED},
    )
