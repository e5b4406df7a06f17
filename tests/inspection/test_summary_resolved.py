"""Output of `inspect` about names that were merged into one entity."""

from __future__ import annotations

import pyarrow as pa

from hirag_dist.inspection import inspect_tables
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
