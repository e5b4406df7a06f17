"""Small charts as SVG text. Colours and fonts come from the page's style sheet, by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from hirag_dist.core.graph.hierarchy_metrics import PathLengthSample
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.inspection.measures import ClusteringCoefficients
from hirag_dist.inspection.model import DegreeBin, LayerSummary

_WIDTH = 520
_MOST_HOPS = 12  # drawn apart; longer paths share one place


def layer_pyramid(layers: Sequence[LayerSummary]) -> str:
    """Return the layers stacked, layer 0 at the bottom; a layer's width goes with the square root of its entities."""
    row, gap, left, full = 44, 5, 8, 250
    largest = max((layer.entities for layer in layers), default=0)
    height = len(layers) * (row + gap) + 2
    middle = left + full / 2
    parts = []
    for place, layer in enumerate(reversed(layers)):
        half = max(full / 2 * math.sqrt(layer.entities / max(largest, 1)), 3.0)
        top = place * (row + gap) + 1
        text = left + full + 18
        sizes = f"median {_short(layer.median_cluster)} · largest {layer.largest_cluster:,}"
        clusters = f"{count_noun(layer.clusters, 'cluster')} · {sizes}"
        title = f"Layer {layer.layer}: {count_noun(layer.entities, 'entity', 'entities')}"
        parts.append(
            f"<g><title>{escape(title)}</title>"
            f'<rect class="fill-l{layer.layer % 8}" x="{middle - half:.1f}" y="{top}" width="{2 * half:.1f}" '
            f'height="{row}" rx="6"/>'
            f'<text class="strong" x="{text}" y="{top + 19}">Layer {layer.layer} · {layer.entities:,}</text>'
            f'<text class="soft" x="{text}" y="{top + 36}">{clusters if layer.clusters else "not clustered"}</text></g>'
        )
    return svg(_WIDTH, height, "Entities by layer", parts)


def sparsity_chart(layers: Sequence[LayerSummary]) -> str:
    """Return two lines over the layers: cluster sparsity (Eq. 17) and, dashed, its change rate in percent."""
    width, height, left, right, top, bottom = _WIDTH, 232, 52, 56, 26, 34
    known = [layer for layer in layers if layer.sparsity is not None]
    if not known:
        return '<p class="none">No layer was clustered.</p>'
    values = [layer.sparsity or 0.0 for layer in known]
    changes = [layer for layer in known if layer.change_rate is not None]
    low = max(0.0, math.floor((min(values) - 0.02) * 20) / 20) if min(values) >= 0 else min(values)
    high = max(1.0, max(values))
    most = nice_number(max((abs(layer.change_rate or 0.0) for layer in changes), default=0.0) * 100)
    numbers = [layer.layer for layer in layers]
    span = max(numbers) - min(numbers) or 1

    def across(layer: int) -> float:
        return left + 14 + (width - left - right - 28) * (layer - min(numbers)) / span

    def up(share: float) -> float:
        return height - bottom - (height - top - bottom) * share

    parts = []
    for step in range(5):
        y = up(step / 4)
        parts.append(
            f'<line class="rule" x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="soft end" x="{left - 8}" y="{y + 4:.1f}">{low + (high - low) * step / 4:.3g}</text>'
        )
        if changes:
            parts.append(f'<text class="soft" x="{width - right + 8}" y="{y + 4:.1f}">{most * step / 4:.3g} %</text>')
    parts += [
        f'<text class="soft mid" x="{across(number):.1f}" y="{height - 12}">layer {number}</text>' for number in numbers
    ]
    curve = [
        (across(layer.layer), up((value - low) / ((high - low) or 1)), f"CS of layer {layer.layer}: {value:.4f}")
        for layer, value in zip(known, values, strict=True)
    ]
    dashed = [
        (across(layer.layer), up(abs(layer.change_rate or 0.0) * 100 / most), f"change rate: {layer.change_rate:.2%}")
        for layer in changes
    ]
    parts += [_line(dashed, "change"), _line(curve, "sparsity")]
    parts.append(
        f'<text class="soft" x="{left}" y="13">cluster sparsity CS</text>'
        + (f'<text class="soft end" x="{width - 4}" y="13">change rate (dashed)</text>' if changes else "")
    )
    return svg(width, height, "Cluster sparsity by layer", parts)


def degree_chart(bins: Sequence[DegreeBin]) -> str:
    """Return the degree distribution with both axes logarithmic; entities without a neighbour are not drawn."""
    shown = [found for found in bins if found.low > 0]
    if not shown:
        return '<p class="none">No entity has a neighbour.</p>'
    width, height, left, top, bottom = _WIDTH, 232, 46, 14, 40
    decades = max(1, math.ceil(math.log10(max(found.entities for found in shown) + 1)))
    parts = []
    for decade in range(decades + 1):
        y = height - bottom - (height - top - bottom) * decade / decades
        parts.append(
            f'<line class="rule" x1="{left}" x2="{width - 6}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="soft end" x="{left - 8}" y="{y + 4:.1f}">{_short(10**decade)}</text>'
        )
    step = (width - left - 10) / len(shown)
    for place, found in enumerate(shown):
        tall = (height - top - bottom) * max(math.log10(found.entities), 0.04) / decades if found.entities else 0.0
        x = left + 4 + place * step
        name = str(found.low) if found.low == found.high else f"{_short(found.low)}\u2013{_short(found.high)}"
        neighbours = "neighbour" if found.high == 1 else "neighbours"
        parts.append(
            f"<g><title>{count_noun(found.entities, 'entity', 'entities')} with {name} {neighbours}</title>"
            f'<rect class="degree" x="{x + step * 0.08:.1f}" y="{height - bottom - tall:.1f}" '
            f'width="{step * 0.84:.1f}" height="{tall:.1f}" rx="2"/>'
            f'<text class="soft mid" x="{x + step / 2:.1f}" y="{height - 22}">{name}</text></g>'
        )
    parts.append(f'<text class="soft mid" x="{(width + left) / 2:.1f}" y="{height - 4}">neighbours of an entity</text>')
    return svg(width, height, "Degree distribution", parts)


def path_chart(paths: PathLengthSample) -> str:
    """Return which share of the pairs is how many hops apart: in layer 0 and, beside it, over all layers."""
    if not paths.pairs:
        return '<p class="none">No two entities of layer 0 stand in different chunks.</p>'
    most = max(len(paths.flat_hops), len(paths.hops)) - 1
    longest = max(min(most, _MOST_HOPS), 0)
    names = [str(hops) for hops in range(1, longest + 1)]
    flat, whole = (_shares(counts, longest, paths.pairs) for counts in (paths.flat_hops, paths.hops))
    if most > longest:
        names[-1] = f"{longest}+"
    if paths.flat_unreachable:
        names.append("none")
        flat.append(paths.flat_unreachable / paths.pairs)
        whole.append(paths.unreachable / paths.pairs)
    return _pairs_of_bars(names, flat, whole, "{:.1%}", "Share of the pairs by hops between them")


def clustering_chart(base: ClusteringCoefficients, whole: ClusteringCoefficients) -> str:
    """Return the clustering coefficients of layer 0 and of all layers side by side, as the paper's Fig. 5 does."""
    flat, layered = ([graph.transitivity, graph.average_local] for graph in (base, whole))
    return _pairs_of_bars(["global (Eq. 18)", "mean local"], flat, layered, "{:.4f}", "Clustering coefficients")


def _shares(counts: Sequence[int], longest: int, total: int) -> list[float]:
    """The share of each number of hops from 1 to `longest`, which stands for the longer ones too."""
    padded = [*counts, *([0] * (longest + 1 - len(counts)))]
    return [count / total for count in (*padded[1:longest], sum(padded[longest:]))] if longest else []


def _pairs_of_bars(names: Sequence[str], flat: Sequence[float], whole: Sequence[float], form: str, label: str) -> str:
    """Two bars a name: of layer 0 and of all layers, with their values above where there is room."""
    width, height, left, top, bottom = _WIDTH, 232, 8, 46, 26
    most = max((*flat, *whole), default=0.0) or 1.0
    step = (width - left - 8) / max(len(names), 1)
    bar = min(step * 0.38, 60.0)
    parts = [
        f'<line class="rule" x1="{left}" x2="{width - 8}" y1="{height - bottom}" y2="{height - bottom}"/>',
        f'<rect class="fill-l0" x="{left}" y="5" width="11" height="11" rx="2"/>',
        f'<text class="soft" x="{left + 17}" y="15">layer 0 alone</text>',
        f'<rect class="degree" x="{left + 112}" y="5" width="11" height="11" rx="2"/>',
        f'<text class="soft" x="{left + 129}" y="15">all layers</text>',
    ]
    for place, name in enumerate(names):
        middle = left + (place + 0.5) * step
        for value, kind, x, where in (
            (flat[place], "fill-l0", middle - bar, "in layer 0"),
            (whole[place], "degree", middle, "over all layers"),
        ):
            tall = (height - top - bottom) * value / most
            text = form.format(value)
            parts.append(
                f"<g><title>{escape(f'{name}: {text} {where}')}</title>"
                f'<rect class="{kind}" x="{x:.1f}" y="{height - bottom - tall:.1f}" width="{bar:.1f}" '
                f'height="{tall:.1f}" rx="2"/>'
            )
            if bar >= 34 and value:
                parts.append(
                    f'<text class="soft mid" x="{x + bar / 2:.1f}" y="{height - bottom - tall - 5:.1f}">{text}</text>'
                )
            parts.append("</g>")
        parts.append(f'<text class="soft mid" x="{middle:.1f}" y="{height - 9}">{escape(name)}</text>')
    return svg(width, height, label, parts)


def _line(points: Sequence[tuple[float, float, str]], kind: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    dots = "".join(
        f'<circle class="dot-{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(text)}</title></circle>'
        for x, y, text in points
    )
    return f'<polyline class="line-{kind}" points="{path}"/>{dots}' if points else ""


def svg(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    """Return a picture of parts that are SVG already, as wide as there is room; `label` says what it shows."""
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def nice_number(value: float) -> float:
    """Return the next of 1, 2, 4, 5, 8, 10, 20, 40, … that is not below the value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value * (1 - 1e-9))


def _short(number: float) -> str:
    """A number in few letters.

    >>> _short(2.5), _short(31), _short(1023), _short(10_000)
    ('2.5', '31', '1023', '10k')
    """
    if number >= 10_000:
        return f"{number / 1000:.3g}k" if number < 1e6 else f"{number / 1e6:.3g}M"
    return f"{number:g}"
