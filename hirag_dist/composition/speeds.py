"""How fast the endpoints of an index replied in its builds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hirag_dist.composition.build_records import earlier_builds, last_build
from hirag_dist.storage.store import Store

_LEAST_TOKENS = 100  # of replies, below which a speed means nothing


def recorded_speeds(store: Store) -> dict[str, float]:
    """Return endpoint → tokens a second of its replies, all calls together, in the latest build that asked it."""
    last = last_build(store)
    found: dict[str, float] = {}
    for record in reversed([*([] if last is None else [last]), *earlier_builds(store)]):
        found |= measured_speeds(record.get("stages", ()))
    return found


def measured_speeds(stages: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return endpoint → tokens a second in the stages of a build whose replies were all asked for by it."""
    tokens: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for stage in stages:
        for row in stage["usage"]:
            if stage.get("kept") or row["ledger_hits"] or not row["output_tokens"]:
                continue
            name = row["endpoint"]
            tokens[name] = tokens.get(name, 0) + row["output_tokens"]
            seconds[name] = seconds.get(name, 0.0) + stage["seconds"]
    return {name: n / seconds[name] for name, n in tokens.items() if n >= _LEAST_TOKENS and seconds[name]}
