"""Output of `inspect` about names that were merged into one entity."""

from __future__ import annotations

import pyarrow as pa

from hirag_dist.inspection import graph_view, inspect_tables, render_page
from hirag_dist.schemas import ALIASES
from tests.inspection.indexes import Tables


def alias(name: str, tier: str, score: float) -> dict[str, object]:
    return {
        "name_key": name,
        "canonical_key": "a",
        "name": name,
        "canonical_name": "a",
        "entity_id": "0:a",
        "tier": tier,
        "score": score,
        "evidence": "they meet",
    }


def test_names_by_tier_with_examples_the_cheap_tiers_first(tiny: Tables) -> None:
    rows = [alias(f"n{at:02}", "llm", 1 - at / 100) for at in range(12)] + [alias("x", "normalise", 0.5)]
    found = inspect_tables(tiny | {"aliases": pa.Table.from_pylist(rows, ALIASES)}, {})
    first, second = found.resolved
    assert (first.tier, first.names, second.tier, second.names) == ("normalise", 1, "llm", 12)
    assert [said.name for said in second.examples] == ["n00", "n02", "n04", "n06", "n08"]  # of all scores
    assert found.to_dict()["resolved"][0]["examples"] == [
        {"name": "x", "canonical_name": "a", "score": 0.5, "evidence": "they meet"}
    ]


def test_the_page_shows_them_and_escapes_their_names(tiny: Tables) -> None:
    aliases = pa.Table.from_pylist([alias("<b>x</b>", "alias", 0.9)], ALIASES)
    page = render_page(inspect_tables(tiny | {"aliases": aliases}, {}), graph_view(tiny))
    assert "<h2>Entity resolution</h2>" in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<b>x</b>" not in page
    assert "Entity resolution" not in render_page(inspect_tables(tiny, {}), graph_view(tiny))
