"""Figures of an index that need no question: layers, clustering coefficients and the bill.

Paper: Figure 4 (Eq. 17), Figure 5 (Eq. 18) and the indexing columns of Table 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from hirag_dist.html import Lines, Section, Table
from hirag_dist.inspection.model import BillLine, GraphSummary, LayerSummary
from hirag_dist.inspection.summary import added_lines, bill_lines, graph_summaries, layer_summaries
from hirag_dist.storage.snapshot.reader import Snapshot

_LAYER_COLUMNS = ("layer", "entities", "clusters", "median_cluster", "sparsity", "change_rate", "decision")


@dataclass(frozen=True)
class HierarchyDescription:
    """Figures of an index and its cost.

    Attributes:
        base, whole: the graph of layer 0, and that of all layers.
        build_seconds: of the build that published it; None where no record of that is left.
    """

    layers: tuple[LayerSummary, ...]
    base: GraphSummary
    whole: GraphSummary
    bill: tuple[BillLine, ...]
    build_seconds: float | None

    @property
    def total(self) -> BillLine:
        """The bill as one line."""
        return added_lines("total", self.bill)


def hierarchy_of(snapshot: Snapshot, build_seconds: float | None) -> HierarchyDescription:
    """Measure an index: a pass over its entities and relations."""
    tables = {name: snapshot.table(name) for name in ("entities", "relations", "layers", "usage")}
    base, whole = graph_summaries(tables["entities"], tables["relations"])
    return HierarchyDescription(layer_summaries(tables), base, whole, bill_lines(tables["usage"]), build_seconds)


def index_results(hierarchy: HierarchyDescription) -> dict[str, Any]:
    """Return JSON."""
    return {
        "layers": [asdict(layer) for layer in hierarchy.layers],
        "clustering": {"layer_0": asdict(hierarchy.base.clustering), "all_layers": asdict(hierarchy.whole.clustering)},
        "bill": [asdict(line) for line in hierarchy.bill],
        "total": asdict(hierarchy.total),
        "build_seconds": hierarchy.build_seconds,
    }


def index_tables(hierarchy: HierarchyDescription) -> Iterator[Table]:
    """Yield layers, clustering coefficients and the bill."""
    yield Table(
        "Layers (Figure 4)",
        ["layer", "entities", "clusters", "median cluster", "sparsity CS", "change rate", "decision"],
        [[getattr(each, name) for name in _LAYER_COLUMNS] for each in hierarchy.layers],
        form=".4g",
    )
    graphs = (("layer 0", hierarchy.base), ("all layers", hierarchy.whole))
    yield Table(
        "Clustering coefficients (Figure 5)",
        ["graph", "entities", "edges", "closed triples of all (Eq. 18)", "mean of local ones"],
        [
            (name, graph.entities, graph.edges, graph.clustering.transitivity, graph.clustering.average_local)
            for name, graph in graphs
        ],
        form=".4f",
    )
    seconds = hierarchy.build_seconds
    lines = [*hierarchy.bill, hierarchy.total]
    yield Table(
        "Indexing cost (Table 5)",
        ["stage", "calls", "tokens in", "tokens out", "US dollars", "models"],
        [
            (line.stage, line.calls, line.input_tokens, line.output_tokens, line.cost_usd, ", ".join(line.models))
            for line in lines
        ],
        note="No record of the build is left, so its time is not known."
        if seconds is None
        else f"The stages of the build that published it took {seconds:,.1f} seconds.",
        form=",.4g",
    )


def index_curves(hierarchy: HierarchyDescription) -> Iterator[Section]:
    """Yield the sparsity of the layers as the paper draws it."""
    sparsity = [(float(each.layer), each.sparsity) for each in hierarchy.layers if each.sparsity is not None]
    change = [(float(each.layer), each.change_rate) for each in hierarchy.layers if each.change_rate is not None]
    if sparsity:
        yield Lines(
            "Cluster sparsity by layer (Figure 4)", "layer", "share", {"sparsity CS": sparsity, "change rate": change}
        )
