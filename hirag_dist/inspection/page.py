"""An inspection as one HTML file that a person can look at, with no network and nothing to install."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from hirag_dist.core.graph.hierarchy_metrics import PathLengthSample
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.inspection.charts import clustering_chart, degree_chart, layer_pyramid, path_chart, sparsity_chart
from hirag_dist.inspection.graph_view import GraphView
from hirag_dist.inspection.model import BillLine, GraphSummary, Inspection, LevelSummary

_TYPES_SHOWN = 12


def render_page(inspection: Inspection, graph: GraphView) -> str:
    """Return the page: layers, sparsity curve, the map of communities, degrees, reports and bill.

    Args:
        inspection: the whole index in numbers.
        graph: what the map draws, from `graph_view`.
    """
    parts = {
        "css": page_part("page.css"),
        "js": page_part("page.js"),
        "data": script_json(map_data(graph)),
        "snapshot": escape(inspection.snapshot_id or "unnamed snapshot"),
        "created": f"built {escape(inspection.created_at)}" if inspection.created_at else "",
        "status": _status(inspection.complete),
        "tiles": _tiles(inspection),
        "limits": escape(_limits(graph)),
        "pyramid": layer_pyramid(inspection.layers),
        "sparsity": sparsity_chart(inspection.layers),
        "decisions": _decisions(inspection),
        "degrees": degree_chart(inspection.graph.degrees),
        "paths": path_chart(inspection.paths),
        "path_figures": _paths(inspection.paths),
        "coefficients": clustering_chart(inspection.base_graph.clustering, inspection.graph.clustering),
        "types": _types(inspection),
        "hubs": _hubs(inspection),
        "levels": "".join(_level(level) for level in inspection.levels) or '<p class="none">No communities.</p>',
        "resolved": _resolved(inspection),
        "cover": escape(_cover(inspection)),
        "shape": _shape(inspection.base_graph, inspection.graph),
        "bill": _bill(inspection),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], page_part("page.html"))


def map_data(graph: GraphView) -> dict[str, Any]:
    """Return what the page's script draws, as columns of plain numbers and strings; places in tenths of a unit."""
    layout = graph.layout

    def tenths(values: Any) -> list[int]:
        return [int(value) for value in np.rint(np.asarray(values) * 10)]

    return {
        "entities": dict(graph.entities)
        | {"x": tenths(layout.dots[:, 0]), "y": tenths(layout.dots[:, 1]), "r": tenths(layout.dot_radii)},
        "communities": dict(graph.communities)
        | {"x": tenths(layout.circles[:, 0]), "y": tenths(layout.circles[:, 1]), "r": tenths(layout.circle_radii)},
        "relations": dict(graph.relations),
        "types": list(graph.types),
        "kinds": list(graph.kinds),
        "radius": round(layout.radius * 10),
    }


def script_json(value: Any) -> str:
    r"""Return JSON that can stand in a script element: no tag can begin in it and no line separator breaks it.

    >>> script_json(["</script>"])
    '["\\u003c/script\\u003e"]'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029\x7f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def page_part(name: str) -> str:
    """Return a part of the page, such as `page.css`."""
    return files("hirag_dist.inspection").joinpath(name).read_text(encoding="utf-8")


def _status(complete: bool | None) -> str:
    if complete is None:
        return ""
    return '<span class="chip good">complete</span>' if complete else '<span class="chip bad">incomplete</span>'


def _tiles(inspection: Inspection) -> str:
    names = ("documents", "chunks", "entities", "relations", "layers", "communities", "reports")
    tiles = [(name, f"{inspection.counts.get(name, 0):,}") for name in names]
    if inspection.counts.get("claims"):
        tiles.append(("claims", f"{inspection.counts['claims']:,}"))
    tiles.append(("cost", f"${inspection.total.cost_usd:,.2f}"))
    return "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in tiles)


def _limits(graph: GraphView) -> str:
    drawn = {"entities": len(graph.entities["name"]), "relations": len(graph.relations["source"])}
    chosen = {"entities": "most prominent", "relations": "heaviest"}
    parts = [
        f"the {drawn[name]:,} {chosen[name]} of {graph.totals[name]:,} {name}"
        if drawn[name] < graph.totals[name]
        else f"all {drawn[name]:,} {name}"
        for name in drawn
    ]
    communities = len(graph.communities["title"])
    parts.append(f"{communities:,} of {graph.totals['communities']:,} communities")
    alone = "" if communities == graph.totals["communities"] else "; communities of one entity have no circle"
    return f"Shown: {', '.join(parts)}{alone}."


def _decisions(inspection: Inspection) -> str:
    rows = [
        [
            f'<i class="swatch back-l{layer.layer % 8}"></i>{layer.layer}',
            "\u2013" if layer.sparsity is None else f"{layer.sparsity:.4f}",
            "\u2013" if layer.change_rate is None else f"{layer.change_rate:.2%}",
            "\u2013" if layer.covered is None else f"{layer.covered:.1%}",
            escape(layer.decision),
        ]
        for layer in inspection.layers
    ]
    return html_table(["layer", "CS", "change", "summarised", "decision"], rows, texts={0, 4})


def _types(inspection: Inspection) -> str:
    shown = inspection.entity_types[:_TYPES_SHOWN]
    largest = max((found.entities for found in shown), default=1)
    lines = [
        f'<li><span dir="auto">{escape(found.type)}</span><b>{found.entities:,}</b>'
        f'<i style="width:{100 * found.entities / largest:.1f}%"></i></li>'
        for found in shown
    ]
    rest = inspection.entity_types[_TYPES_SHOWN:]
    entities = count_noun(sum(found.entities for found in rest), "entity", "entities")
    more = f'<p class="soft">and {count_noun(len(rest), "more type")}, {entities}</p>'
    return f'<ul class="bars">{"".join(lines)}</ul>{more if rest else ""}'


def _hubs(inspection: Inspection) -> str:
    rows = [
        [
            f'<button type="button" class="link" data-find="{escape(hub.name)}" dir="auto">{escape(hub.name)}</button>',
            f'<span dir="auto">{escape(hub.type)}</span>',
            str(hub.layer),
            f"{hub.degree:,}",
        ]
        for hub in inspection.hubs
    ]
    return html_table(["entity", "type", "layer", "neighbours"], rows, texts={0, 1})


def _resolved(inspection: Inspection) -> str:
    """Return the section on entity resolution with its end of line, nothing where there was none."""
    if not inspection.resolved:
        return ""
    rows = [
        [
            escape(tier.tier) if at == 0 else "",
            f"{tier.names:,}" if at == 0 else "",
            *(f'<span dir="auto">{escape(text)}</span>' for text in (said.name, said.canonical_name, said.evidence)),
        ]
        for tier in inspection.resolved
        for at, said in enumerate(tier.examples)
    ]
    told = html_table(["tier", "names", "name", "entity", "why"], rows, texts={0, 2, 3, 4})
    soft = "Names that are another name's entity, with examples."
    return f'<section class="card"><h2>Entity resolution</h2><p class="soft">{soft}</p>{told}</section>\n'


def _level(level: LevelSummary) -> str:
    low, quarter, median, upper, high = (f"{size:,.4g}" for size in level.sizes)
    share = level.reports / max(level.communities, 1)
    titles = "".join(
        f'<li><button type="button" class="link" data-find="{escape(found.title)}" dir="auto">{escape(found.title)}'
        f"</button> <span>{found.entities:,}</span></li>"
        if found.title
        else f"<li><em>without a report</em> <span>{found.entities:,}</span></li>"
        for found in level.largest[:5]
    )
    return (
        f"<div><h3>Level {level.level} "
        f"<small>{count_noun(level.communities, 'community', 'communities')}, {level.leaves:,} not split</small></h3>"
        f'<p class="soft">entities: smallest {low} · quarter {quarter} · median {median} · three quarters {upper} · '
        f"largest {high}<br>reports: {level.reports:,} ({share:.0%}), over {level.entities_covered:.0%} of the entities"
        f"</p>"
        f"<ol>{titles}</ol></div>"
    )


def _cover(inspection: Inspection) -> str:
    cover = inspection.reports
    return (
        f"{count_noun(cover.reports, 'report covers', 'reports cover')} {cover.communities_share:.0%} of the "
        "communities and "
        f"{cover.entities_share:.0%} of the entities; a model wrote {cover.from_model:,}."
    )


def _shape(base: GraphSummary, whole: GraphSummary) -> str:
    def line(name: str, values: Iterable[str]) -> list[str]:
        return [name, *values]

    def about(value: float, graph: GraphSummary) -> str:
        return f"{'' if graph.clustering.exact else '≈ '}{value:.4f}"

    graphs = (base, whole)
    rows = [
        line("entities", (f"{graph.entities:,}" for graph in graphs)),
        line("related pairs", (f"{graph.edges:,}" for graph in graphs)),
        line("neighbours, mean", (f"{graph.mean_degree:.2f}" for graph in graphs)),
        line("connected components", (f"{graph.components:,}" for graph in graphs)),
        line("share of the largest", (f"{graph.largest_share:.1%}" for graph in graphs)),
        line("entities without a neighbour", (f"{graph.isolated:,}" for graph in graphs)),
        line("clustering coefficient (Eq. 18)", (about(graph.clustering.transitivity, graph) for graph in graphs)),
        line("mean local coefficient", (about(graph.clustering.average_local, graph) for graph in graphs)),
    ]
    return html_table(["", "layer 0", "all layers"], rows, texts={0})


def _paths(paths: PathLengthSample) -> str:
    def hops(mean: float | None) -> str:
        return "\u2013" if mean is None else f"{mean:.2f}"

    rows = [
        ["pairs with a path", *(f"{1 - missing / max(paths.pairs, 1):.1%}" for missing in _missing(paths))],
        ["mean hops of the pairs that layer 0 joins", hops(paths.flat_mean), hops(paths.mean_of_flat)],
        ["mean hops of all pairs that have a path", hops(paths.flat_mean), hops(paths.mean)],
    ]
    return html_table(["", "layer 0", "all layers"], rows, texts={0}) + f'<p class="soft">{_sample(paths)}</p>'


def _missing(paths: PathLengthSample) -> tuple[int, int]:
    return paths.flat_unreachable, paths.unreachable


def _sample(paths: PathLengthSample) -> str:
    if paths.exact:
        return f"All pairs that share no chunk: {paths.pairs:,}."
    entities, pairs = count_noun(paths.sources, "entity", "entities"), count_noun(paths.pairs, "pair")
    return f"A sample: {entities} drawn by a fixed seed, each with all others: {pairs}."


def _bill(inspection: Inspection) -> str:
    def cells(line: BillLine) -> list[str]:
        numbers = (
            line.calls,
            line.ledger_hits,
            line.input_tokens,
            line.cached_tokens,
            line.output_tokens,
            line.rejected,
        )
        models = ", ".join(line.models)
        return [escape(line.stage), escape(models), *(f"{number:,}" for number in numbers), f"${line.cost_usd:,.4f}"]

    heads = ["stage", "model", "calls", "paid before", "tokens in", "of them cached", "tokens out", "rejected", "cost"]
    total = cells(inspection.total)
    total[1] = ""
    return html_table(heads, [cells(line) for line in inspection.bill], texts={0, 1}, foot=total)


def html_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], texts: set[int], foot: Sequence[str] | None = None
) -> str:
    """A table of cells that are HTML already; columns in `texts` stand left, the others are numbers."""

    def row(cells: Sequence[str], tag: str) -> str:
        kinds = ["" if place in texts else ' class="number"' for place in range(len(cells))]
        return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag}>' for kind, cell in zip(kinds, cells, strict=True))}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    end = f"<tfoot>{row(foot, 'td')}</tfoot>" if foot else ""
    return f'<div class="scroll"><table><thead>{row(heads, "th")}</thead><tbody>{body}</tbody>{end}</table></div>'
