"""The picture of the README: the layers of an index as an SVG.

python -m hirag_dist.demo --index /tmp/sample
python -m tools.docs.hierarchy_picture /tmp/sample
"""

from __future__ import annotations

import sys
from collections import defaultdict
from html import escape
from pathlib import Path
from statistics import fmean
from textwrap import wrap
from typing import Any

from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

OUTPUT = Path(__file__).parents[2] / "docs" / "hierarchy.svg"
WIDTH, MARGIN, LABELS = 960, 20, 110  # the column of labels is on the right
ROWS = (340, 190, 70)  # y of layer 0 (its first row), 1 and 2
ROWS_OF_LAYER_0 = 8
NAME_WIDTH = 30  # characters in a line
COLOURS = ("#4c78a8", "#f58518", "#54a24b")
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" role="img"
 aria-label="{label}">
<style>text {{ fill: #666; font-size: 13px }} .name {{ font-size: 12px }}
path {{ fill: none; stroke-width: .5; opacity: .35 }}</style>
"""


def picture(entities: list[dict[str, Any]], relations: list[dict[str, Any]]) -> str:
    """Return the SVG of three layers, with a line from each entity to the summaries that cover it."""
    layers = {row["entity_id"]: row["layer"] for row in entities}
    above: dict[str, list[str]] = defaultdict(list)
    for row in relations:
        if row["kind"] == "summary":
            lower, upper = sorted((row["source_id"], row["target_id"]), key=layers.__getitem__)
            above[lower].append(upper)
    x: dict[str, float] = {}
    y: dict[str, float] = {}
    for layer in (2, 1, 0):
        ids = [row["entity_id"] for row in entities if row["layer"] == layer]
        ids.sort(key=lambda entity: (fmean([x[upper] for upper in above[entity] if upper in x] or [0.0]), entity))
        rows = ROWS_OF_LAYER_0 if layer == 0 else 1
        columns = -(-len(ids) // rows)
        step = (WIDTH - LABELS - 2 * MARGIN) / columns
        for number, entity in enumerate(ids):
            x[entity] = MARGIN + step * (number // rows + 0.5)
            y[entity] = ROWS[layer] + 10 * (number % rows)
    parts = [_HEAD.format(width=WIDTH, height=ROWS[0] + 10 * ROWS_OF_LAYER_0 + 20, label=_label(entities))]
    for layer in (0, 1):
        lines = [
            f"M{x[lower]:.0f} {y[lower]}L{x[upper]:.0f} {y[upper]}"
            for lower in x
            if layers[lower] == layer
            for upper in above[lower]
            if upper in x
        ]
        parts.append(f'<path stroke="{COLOURS[layer + 1]}" d="{"".join(lines)}"/>\n')
    for layer, radius in enumerate((2.2, 4, 7)):
        circles = "".join(
            f'<circle cx="{x[entity]:.0f}" cy="{y[entity]}" r="{radius}"/>' for entity in x if layers[entity] == layer
        )
        parts.append(f'<g fill="{COLOURS[layer]}">{circles}</g>\n')
        count = sum(found == layer for found in layers.values())
        about = "extracted" if layer == 0 else "summaries"
        parts.append(
            f'<text x="{WIDTH - LABELS}" y="{ROWS[layer] + 4}">layer {layer}</text>'
            f'<text x="{WIDTH - LABELS}" y="{ROWS[layer] + 20}">{count} {about}</text>\n'
        )
    for row in entities:
        if row["layer"] == 2:
            lines = wrap(row["name"], NAME_WIDTH)
            for number, line in enumerate(lines):
                at = f'x="{x[row["entity_id"]]:.0f}" y="{ROWS[2] - 14 - 13 * (len(lines) - 1 - number)}"'
                parts.append(f'<text class="name" text-anchor="middle" {at}>{escape(line)}</text>\n')
    return "".join([*parts, "</svg>\n"])


def _label(entities: list[dict[str, Any]]) -> str:
    counts = [sum(row["layer"] == layer for row in entities) for layer in range(3)]
    return f"Layers of the sample index: {counts[0]} entities, {counts[1]} and {counts[2]} summaries"


def main() -> None:
    """Draw the index that the command line names."""
    snapshot = open_snapshot(Store(sys.argv[1]))
    entities = snapshot.table("entities").select(["entity_id", "layer", "name"]).to_pylist()
    relations = snapshot.table("relations").select(["source_id", "target_id", "kind"]).to_pylist()
    OUTPUT.write_text(picture(entities, relations), encoding="utf-8")


if __name__ == "__main__":
    main()
