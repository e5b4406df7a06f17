"""`hirag-dist drift`: an updated index compared with a shadow clustering of its entities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from hirag_dist.cli._fallback import conclude_reading
from hirag_dist.cli._options import IndexOption, JsonOption, SnapshotOption
from hirag_dist.cli._output import emit, out, table, use_json
from hirag_dist.cli._update_state import debt_line, update_line
from hirag_dist.composition.drift import measure_drift
from hirag_dist.core.drift.report import CommunityDrift, DriftReport, Gate, LayerDrift, PartitionDrift, UpdateStaleness
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.store import Store

CHECK_FAILED = 6  # exit code


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("drift")(drift)


def drift(
    index: IndexOption,
    snapshot: SnapshotOption = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with code 6 if a gate fails.")] = False,
    json: JsonOption = False,
) -> None:
    """Compare an index with a shadow clustering of the same entities, and show which texts are due.

    The shadow is what a build from nothing would group the entities into, with the settings of the index. It takes the
    time of clustering and of community detection, and makes no call.
    """
    use_json(json)
    opened = open_current(Store(index), snapshot)
    report = measure_drift(opened)
    if json:
        emit(report.to_dict() | {"fallback": opened.fallback or None})
    else:
        out.print(f"Snapshot {report.snapshot_id}; the shadow was made with kernels: {report.kernels}")
        show_drift(report)
    if check and not report.holds:
        raise typer.Exit(CHECK_FAILED)
    conclude_reading(opened.fallback)


def show_drift(report: DriftReport) -> None:
    """Print the tables of a report, its gates, and what to do where they fail."""
    if report.layers:
        columns = ["layer", "entities", "clusters", "of shadow", "Jaccard", "ARI", "compactness", "of shadow", "ratio"]
        columns += ["orphans", "of 1", "too large"]
        rows = [_layer_row(layer) for layer in report.layers]
        out.print(table("Clusters", columns, rows, right=range(len(columns)), spare=(10, 11, 1)))
    if report.communities is not None:
        columns = ["communities", "number", "of shadow", "Jaccard", "ARI", "modularity", "of shadow", "gap", "orphans"]
        columns += ["too large", "of shadow"]
        rows = _community_rows(report.communities)
        out.print(table("Communities", columns, rows, right=range(1, len(columns)), spare=(10, 9)))
    if report.update is not None:
        _show_update(report.update)
    columns = ["gate", "of", "value", "limit", "state"]
    out.print(table("Gates", columns, [_gate_row(gate) for gate in report.gates], right=(2, 3)))
    for line in (*_advice(report.gates), *report.notes):
        out.print(line)


def _layer_row(layer: LayerDrift) -> tuple[object, ...]:
    return (
        layer.layer,
        layer.entities,
        *_agreement(layer.clusters),
        f"{layer.compactness:.4f}",
        f"{layer.shadow_compactness:.4f}",
        f"{layer.compactness_ratio:.3f}",
        layer.orphans,
        layer.clusters.sizes.small,
        layer.clusters.sizes.large,
    )


def _community_rows(found: CommunityDrift) -> list[tuple[object, ...]]:
    top, leaves = found.top, found.leaves
    figures = (f"{found.modularity:.4f}", f"{found.shadow_modularity:.4f}", f"{found.modularity_gap:+.2%}")
    return [
        ("level 0", *_agreement(top), *figures, found.orphans, None, None),
        ("leaves", *_agreement(leaves), None, None, None, None, leaves.sizes.large, leaves.shadow_sizes.large),
    ]


def _agreement(groups: PartitionDrift) -> tuple[object, ...]:
    return groups.sizes.groups, groups.shadow_sizes.groups, f"{groups.jaccard:.3f}", f"{groups.ari:.3f}"


def _show_update(state: UpdateStaleness) -> None:
    out.print(f"{update_line(state.number, state.documents, state.other_changes)} {debt_line({'debt': state.debt})}")
    columns = ["texts", "number", "due", "tokens", "due", "share due", "material changed"]
    rows = [
        (
            kind,
            texts.units,
            texts.due,
            texts.tokens,
            texts.due_tokens,
            f"{texts.due_share:.1%}",
            f"{texts.changed_share:.1%}",
        )
        for kind, texts in (("summaries", state.summaries), ("reports", state.reports))
    ]
    out.print(table("Stale texts; tokens at four characters each", columns, rows, right=range(1, len(columns))))


def _gate_row(gate: Gate) -> tuple[object, ...]:
    return gate.name, gate.part, gate.value_text, gate.limit_text, "holds" if gate.holds else "FAILS"


def _advice(gates: Sequence[Gate]) -> list[str]:
    """Return one sentence for each remedy that a failing gate has."""
    failing: dict[str, list[str]] = {}
    for gate in gates:
        if not gate.holds:
            failing.setdefault(gate.advice, []).append(f"{gate.name} of {gate.part}" if gate.part else gate.name)
    return [f"Against {', '.join(names)}: {advice}." for advice, names in failing.items()]
