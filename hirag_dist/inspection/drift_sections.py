"""Sections of the page about updates: texts that are due, and drift."""

from __future__ import annotations

from hirag_dist.core.drift.report import DriftReport, LayerDrift, PartitionDrift, UpdateStaleness
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.html import Cell, Formatted, Section, Table


def update_section(state: UpdateStaleness) -> Table:
    """Return the texts of an index and how many of them are due."""
    made = f"Update {state.number} since a build from nothing. " if state.number else "Built from nothing. "
    debt = sum(part.get("units", 0) for part in state.debt.values())
    tokens = sum(part.get("tokens", 0) for part in state.debt.values())
    owed = f"Debt: {count_noun(debt, 'text')}, about {tokens:,} tokens. " if debt else "No debt. "
    rows: list[list[Cell]] = [
        [
            kind,
            texts.units,
            texts.due,
            texts.tokens,
            texts.due_tokens,
            Formatted(f"{texts.due_share:.1%}"),
            Formatted(f"{texts.changed_share:.1%}"),
        ]
        for kind, texts in (("summaries", state.summaries), ("reports", state.reports))
    ]
    heads = ["texts", "number", "due", "tokens", "tokens due", "share due", "material changed"]
    return Table("Updates", heads, rows, f"{made}{owed}Tokens are counted at four characters each.")


def drift_sections(report: DriftReport) -> list[Section]:
    """Return the tables of a drift report; the gates come first."""
    gates: list[list[Cell]] = [
        [
            gate.name,
            gate.part,
            Formatted(gate.value_text),
            Formatted(gate.limit_text),
            "holds" if gate.holds else "fails",
            gate.advice.replace("`", ""),
        ]
        for gate in report.gates
    ]
    about = f"The index compared with a shadow clustering of the same entities, made with kernels: {report.kernels}."
    sections: list[Section] = [
        Table("", ["gate", "of", "value", "limit", "state", "what to do"], gates, " ".join([about, *report.notes]))
    ]
    if report.layers:
        heads = ["layer", *_AGREEMENT, "compactness", "of shadow", "ratio", "orphans", "of 1", "too large"]
        sections.append(Table("Clusters", heads, [_layer_row(layer) for layer in report.layers]))
    if report.communities is not None:
        found = report.communities
        gap = Formatted(f"{found.modularity_gap:+.2%}")
        rows: list[list[Cell]] = [
            ["level 0", *_agreement(found.top), found.modularity, found.shadow_modularity, gap, found.orphans],
            ["leaves", *_agreement(found.leaves), None, None, None, None],
        ]
        heads = ["communities", *_AGREEMENT, "modularity", "of shadow", "gap", "orphans"]
        sections.append(Table("Communities", heads, rows))
    return sections


_AGREEMENT = ("number", "of shadow", "Jaccard", "ARI")


def _agreement(groups: PartitionDrift) -> list[Cell]:
    return [groups.sizes.groups, groups.shadow_sizes.groups, groups.jaccard, groups.ari]


def _layer_row(layer: LayerDrift) -> list[Cell]:
    figures: list[Cell] = [layer.compactness, layer.shadow_compactness, layer.compactness_ratio]
    sizes = layer.clusters.sizes
    return [layer.layer, *_agreement(layer.clusters), *figures, layer.orphans, sizes.small, sizes.large]
