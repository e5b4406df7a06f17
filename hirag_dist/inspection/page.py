"""An inspection, and the tree of communities with their reports, as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from hirag_dist.core.drift import DriftReport, Gate, LayerDrift, PartitionDrift, UpdateStaleness
from hirag_dist.core.graph.csr import build_graph, rows_of
from hirag_dist.core.graph.hierarchy_metrics import PathLengthSample
from hirag_dist.core.text.normalize import count_noun, count_plural, one_line, shorten
from hirag_dist.html import Bars, Cell, Formatted, Lines, Section, Table, element, render_template
from hirag_dist.inspection.model import BillLine, GraphSummary, Inspection, LayerSummary
from hirag_dist.llm.usage import dollars

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
    degrees = np.diff(build_graph(entities["entity_id"], tables["relations"]).indptr)
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


_MAX_TYPES = 12
_MAX_HOPS = 12  # longer paths share the last column
_AGREEMENT = ("number", "of shadow", "Jaccard")
_WIDTH = 520  # of a chart in a card


def render_page(inspection: Inspection, communities: Sequence[OutlineNode]) -> str:
    """Return the page: layers, sparsity curve, graph, paths, communities with their reports, and bill."""
    counts, cover = inspection.counts, inspection.reports
    writers = dict.fromkeys(
        own for line in inspection.bill if line.stage.startswith("report") for own in line.endpoints
    )
    by = f" by endpoint {', '.join(writers)}" if writers and cover.from_model else ""
    names = ["documents", "chunks", "entities", "relations", "layers", "communities", "reports"]
    names += ["claims"] if counts.get("claims") else []
    return render_template(
        __package__,
        "page.html",
        inspection=inspection,
        tiles=[
            *(count_plural(counts.get(name, 0), name) for name in names),
            f"{dollars(inspection.total.cost_usd)} cost",
        ],
        communities=communities,
        limits=_limits(inspection, communities),
        cards=[
            _layers(inspection.layers),
            _sparsity(inspection.layers),
            [_shape(inspection.base_graph, inspection.graph)],
            _paths(inspection.paths),
            [_types(inspection)],
            [_hubs(inspection)],
        ],
        cover=f"{count_noun(cover.reports, 'report covers', 'reports cover')} {cover.communities_share:.0%} of the "
        f"communities and {cover.entities_share:.0%} of the entities; written{by}: {cover.from_model:,}."
        + (f" {count_noun(cover.missing, 'report is', 'reports are')} left out." if cover.missing else ""),
        resolved=resolved_section(inspection),
        update=None if inspection.update is None else update_section(inspection.update),
        drift=[] if inspection.drift is None else drift_sections(inspection.drift),
        bill=_bill(inspection),
    )


def _limits(inspection: Inspection, communities: Sequence[OutlineNode]) -> str:
    def count(nodes: Sequence[OutlineNode]) -> int:
        return sum(1 + count(node.children) for node in nodes)

    total = count_noun(inspection.counts.get("communities", 0), "community", "communities")
    return f"Shown: {count(communities):,} of {total}; those of one entity are left out."


def _layers(layers: Sequence[LayerSummary]) -> list[Section]:
    entities = [(f"layer {layer.layer}", float(layer.entities)) for layer in reversed(layers)]
    chart = Bars("Layers", {"": entities}, "Entities of each layer.", ",.0f", None, _WIDTH, log=True)
    rows: list[list[Cell]] = [
        [
            element("span", element("i", class_=f"swatch fill-l{layer.layer % 8}"), str(layer.layer)),
            layer.clusters,
            f"{layer.median_cluster:g} / {layer.largest_cluster:,.0f}" if layer.clusters else "–",
            _formatted(layer.sparsity, ".4f"),
            _formatted(layer.change_rate, ".2%"),
            _formatted(layer.covered, ".1%"),
            layer.decision,
        ]
        for layer in layers
    ]
    heads = ["layer", "clusters", "members", "CS", "change", "summarised", "decision"]
    return [chart, Table("", heads, rows, "Members: the median and the largest of the clusters.")]


def _sparsity(layers: Sequence[LayerSummary]) -> list[Section]:
    note = "CS (Eq. 17) is near 1 where clusters hold few entities."
    sparsity = [(layer.layer, layer.sparsity) for layer in layers if layer.sparsity is not None]
    changes = [(layer.layer, layer.change_rate) for layer in layers if layer.change_rate is not None]
    marks = [float(layer) for layer, _ in sparsity]
    charts: list[Section] = [
        Lines("Cluster sparsity", "layer", "CS", {"CS": sparsity}, note, ".4f", False, _WIDTH, 150, marks)
    ]
    if changes:
        series = {"change rate": changes}
        charts.append(Lines("Change rate", "layer", "change rate", series, "", ".1%", True, _WIDTH, 90, marks))
    return charts


def _shape(base: GraphSummary, whole: GraphSummary) -> Table:
    def figures(graph: GraphSummary) -> Iterator[tuple[str, str]]:
        yield "entities", f"{graph.entities:,}"
        yield "related pairs", f"{graph.edges:,}"
        yield "neighbours, mean", f"{graph.mean_degree:.2f}"
        yield "connected components", f"{graph.components:,}"
        yield "share of the largest", f"{graph.largest_share:.1%}"
        yield "entities without a neighbour", f"{graph.isolated:,}"
        yield "clustering coefficient (Eq. 18)", f"{graph.clustering.transitivity:.4f}"
        yield "mean local coefficient", f"{graph.clustering.average_local:.4f}"

    rows = [
        [name, Formatted(flat), Formatted(layered)]
        for (name, flat), (_, layered) in zip(figures(base), figures(whole), strict=True)
    ]
    return Table("Shape of the graph", ["", "layer 0", "all layers"], rows, "Parallel relations count once.")


def _paths(paths: PathLengthSample) -> list[Section]:
    rows: list[list[Cell]] = [
        [
            "pairs with a path",
            *(
                Formatted(f"{1 - missing / max(paths.pairs, 1):.1%}")
                for missing in (paths.flat_unreachable, paths.unreachable)
            ),
        ],
        ["mean hops of the pairs that layer 0 joins", paths.flat_mean, paths.mean_of_flat],
        ["mean hops of all pairs that have a path", paths.flat_mean, paths.mean],
    ]
    sample = f"All pairs that share no chunk: {paths.pairs:,}."
    if not paths.exact:
        entities, pairs = count_noun(paths.sources, "entity", "entities"), count_noun(paths.pairs, "pair")
        sample = f"A sample: {entities} drawn by a fixed seed, each with all others: {pairs}."
    return [path_chart(paths), Table("", ["", "layer 0", "all layers"], rows, sample, ".2f")]


def path_chart(paths: PathLengthSample) -> Bars:
    """Return the shares of the pairs by hops, in layer 0 and over all layers."""
    longest = max(len(paths.flat_hops), len(paths.hops)) - 1
    last = max(min(longest, _MAX_HOPS), 0)
    series = {}
    for name, hops, missing in (
        ("layer 0 alone", paths.flat_hops, paths.flat_unreachable),
        ("all layers", paths.hops, paths.unreachable),
    ):
        padded = [*hops, *[0] * (last + 1 - len(hops))]
        pairs = [(str(n), padded[n]) for n in range(1, last)]
        pairs += [(f"{last}+" if last < longest else str(last), sum(padded[last:]))] if last else []
        pairs += [("none", missing)] if paths.flat_unreachable else []
        series[name] = [(label, count / max(paths.pairs, 1)) for label, count in pairs]
    note = "Hops between entities of layer 0 that share no chunk."
    return Bars("Path lengths", series, note, whole=None, width=_WIDTH)


def _types(inspection: Inspection) -> Bars:
    shown, rest = inspection.entity_types[:_MAX_TYPES], inspection.entity_types[_MAX_TYPES:]
    entities = count_noun(sum(found.entities for found in rest), "entity", "entities")
    note = f"The most frequent; {count_noun(len(rest), 'more type')} with {entities}." if rest else ""
    series = {"": [(found.type, float(found.entities)) for found in shown]}
    return Bars("Entity types", series, note, ",.0f", None, _WIDTH)


def _hubs(inspection: Inspection) -> Table:
    rows: list[list[Cell]] = [[hub.name, hub.type, hub.layer, hub.degree] for hub in inspection.hubs]
    return Table("Hubs", ["entity", "type", "layer", "neighbours"], rows)


def resolved_section(inspection: Inspection) -> Table | None:
    """Return names of which entity resolution made another name's entity, with examples; None where there are none."""
    rows: list[list[Cell]] = [
        [
            tier.tier if at == 0 else "",
            Formatted(f"{tier.names:,}" if at == 0 else ""),
            *(example.name, example.canonical_name, example.evidence),
        ]
        for tier in inspection.resolved
        for at, example in enumerate(tier.examples)
    ]
    note = "Names that are another name's entity, with examples."
    return Table("Entity resolution", ["tier", "names", "name", "entity", "why"], rows, note) if rows else None


def _bill(inspection: Inspection) -> Table:
    def cells(line: BillLine) -> list[Cell]:
        tokens = (line.input_tokens, line.cached_tokens, line.output_tokens)
        faults, cost = (line.rate_limited, line.rejected), Formatted(dollars(line.cost_usd))
        names = (", ".join(line.endpoints), ", ".join(line.models))
        return [line.stage, *names, line.calls, line.ledger_hits, *tokens, *faults, cost]

    heads = ["stage", "endpoint", "model", "calls", "ledger", "in", "cached", "out", "429", "refused", "cost"]
    foot = cells(replace(inspection.total, endpoints=(), models=()))
    return Table("Bill", heads, [cells(line) for line in inspection.bill], foot=foot)


def _formatted(value: float | None, form: str) -> Formatted | None:
    return None if value is None else Formatted(format(value, form))


def update_section(state: UpdateStaleness) -> Table:
    """Return the texts of an index and how many of them are due."""
    made = f"Update {state.number} since a build from nothing. " if state.number else "Built from nothing. "
    debt = [f"{part['units']:,} {kind}" for kind, part in state.debt.items() if part["units"]]
    tokens = sum(part["tokens"] for part in state.debt.values())
    owed = f"Debt: {', '.join(debt)}, about {tokens:,} tokens. " if debt else "No debt. "
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


def drift_sections(report: DriftReport) -> list[Table]:
    """Return the tables of a drift report; the gates come first."""
    gates: list[list[Cell]] = [
        [
            gate.name,
            gate.part,
            Formatted(gate.value_text),
            Formatted(gate.limit_text),
            "holds" if gate.holds else "fails",
        ]
        for gate in report.gates
    ]
    about = f"The index compared with a shadow clustering of the same entities, made with kernels: {report.kernels}."
    note = " ".join([about, *_advice(report.gates), *report.notes])
    sections = [Table("", ["gate", "of", "value", "limit", "state"], gates, note)]
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


def _advice(gates: Sequence[Gate]) -> list[str]:
    """Return one sentence for each remedy that a failing gate has."""
    failing: dict[str, list[str]] = {}
    for gate in gates:
        if not gate.holds:
            failing.setdefault(gate.advice, []).append(f"{gate.name} of {gate.part}" if gate.part else gate.name)
    return [f"Against {', '.join(names)}: {advice.replace('`', '')}." for advice, names in failing.items()]


def _agreement(groups: PartitionDrift) -> list[Cell]:
    return [groups.sizes.groups, groups.shadow_sizes.groups, groups.jaccard]


def _layer_row(layer: LayerDrift) -> list[Cell]:
    figures: list[Cell] = [layer.compactness, layer.shadow_compactness, layer.compactness_ratio]
    sizes = layer.clusters.sizes
    return [layer.layer, *_agreement(layer.clusters), *figures, layer.orphans, sizes.small, sizes.large]
