"""Time and memory of entity resolution over generated names, as a JSON line.

    python -m benchmarks resolution [--names 1000000]

People, companies, places and concepts of made-up words, 2.5 mentions and three relations a name. The model is not
asked: the figures are those of the pairs that are proposed and of the groups of the sure ones.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import numpy as np
import pyarrow as pa

from hirag_dist.core.entities.resolution.clusters import group_pairs
from hirag_dist.core.entities.resolution.names import Names
from hirag_dist.core.entities.resolution.scores import MERGED_FROM, scored_pairs
from hirag_dist.core.text.normalize import name_key
from hirag_dist.schemas import MENTIONS, RELATION_MENTIONS

_SYLLABLES = [
    *("ba", "ko", "ri", "ten", "ma", "lu", "sha", "dor", "vin", "el"),
    *("gra", "po", "sti", "kar", "no", "fe", "zu", "han", "mi", "ra"),
]
_FIRMS = ["Company", "Institute", "University", "Group", "Bank", "Party", "School"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=1_000_000, help="number of distinct names")
    mentions, relations = generated(parser.parse_args().names)
    began, used = time.perf_counter(), time.process_time()
    names = Names(mentions, relations)
    pairs = list(scored_pairs(names))
    sure = [pair for pair in pairs if pair.score >= MERGED_FROM]
    forms, n_mentions = [own.form for own in names.rows], [own.n_mentions for own in names.rows]
    aliases = list(group_pairs(forms, n_mentions, sure, set()))
    line = {"benchmark": "resolution", "names": len(names.rows), "pairs": len(pairs), "merged": len(aliases)}
    line |= {"seconds": round(time.perf_counter() - began), "cpu_s": round(time.process_time() - used)}
    print(json.dumps(line | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}))


def generated(n_names: int) -> tuple[pa.Table, pa.Table]:
    """Return MENTIONS and RELATION_MENTIONS of distinct names, some words of which are much more frequent."""
    rng = np.random.default_rng(7)
    firsts, lasts, nouns = (
        ["".join(rng.choice(_SYLLABLES, least + at % spread)).title() for at in range(count)]
        for count, least, spread in ((3000, 2, 1), (60_000, 3, 1), (120_000, 2, 3))
    )

    def some(words: list[str]) -> str:
        return words[int(len(words) * rng.power(0.5))]

    found: dict[str, tuple[str, str]] = {}
    while len(found) < n_names:
        kind = str(rng.choice(["person", "organization", "location", "concept"], p=[0.4, 0.2, 0.15, 0.25]))
        name = {
            "person": f"{some(firsts) if rng.random() < 0.9 else some(firsts)[0] + '.'} {some(lasts)}",
            "organization": f"{some(nouns)} {some(_FIRMS)}{' Inc.' if rng.random() < 0.1 else ''}",
            "location": f"{some(nouns)} {some(nouns)}",
            "concept": f"{some(nouns)} {some(nouns)} {some(nouns)}".lower(),
        }[kind]
        found[name_key(name)] = name, kind
    keys, counts = list(found), rng.integers(1, 5, n_names)
    rows: list[dict[str, Any]] = []
    for key, count in zip(keys, counts.tolist(), strict=True):
        said = f"The {some(nouns)} of {some(nouns)} near {some(nouns)} and {some(nouns)} in {rng.integers(1500, 2020)}."
        own = {"name_key": key, "name": found[key][0], "type": found[key][1]}
        for at in range(count):
            row = {"chunk_id": f"c{rng.integers(n_names // 15 + 1):07}", "position": len(rows)}
            rows.append(own | row | {"description": "" if at else said, "described": not at})
    ends = np.array(keys, object)[rng.integers(n_names, size=(2, 3 * n_names))].tolist()
    relations = {"source_key": ends[0], "target_key": ends[1], "chunk_id": ["c"] * len(ends[0])}
    relations |= {"position": range(len(ends[0])), "description": [""] * len(ends[0]), "strength": [1.0] * len(ends[0])}
    return pa.Table.from_pylist(rows, MENTIONS), pa.table(
        [pa.array(relations[field.name], field.type) for field in RELATION_MENTIONS], schema=RELATION_MENTIONS
    )


if __name__ == "__main__":
    main()
