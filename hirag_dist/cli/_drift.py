"""An updated index compared with a shadow clustering of its entities, for `hirag-dist inspect --drift`."""

from __future__ import annotations

from collections.abc import Sequence

from hirag_dist.cli._output import out, table
from hirag_dist.cli._update_state import debt_line, update_line
from hirag_dist.core.drift.report import CommunityDrift, DriftReport, Gate, LayerDrift, PartitionDrift, UpdateStaleness


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
