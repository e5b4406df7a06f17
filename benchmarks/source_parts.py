"""Contribution of each part of the ranking of sources: recall of gold passages with parts omitted or changed.

Every question is asked once, in mode `hirag`; its named and retrieved items are then ranked by each
variant, over the index's own graph. The variant that changes nothing must give the engine's sources in the engine's
order, or the benchmark stops. The figures are those of `source_ranking.py`, and the differences to that variant have a
paired bootstrap interval over questions.

    python benchmarks/source_parts.py FOLDER… [--index DIR] [--embedder hashing|minilm] [--variants SPEC …]

FOLDER and DIR are those of `source_ranking.py`. A SPEC is `as-is`, or has any of these, with commas between them:

    starts=names+entities+bridge+chunks+words   kinds of starting points that are left
    nearest=10                            starting points of a kind, words aside, 20 at most
    words=10                              starting points by words, 20 at most
    shares=1/1/2/2                        of the named, the retrieved, the near, and those with the question's words
    worth=squared                         what one counts by its score: squared (of what it has more than the last),
                                          above (not squared), rank (1 / rank) or score
    tolerance=4.9e-5                      of the walk
    restart=0.2                           of a walk that is exact, by power iteration
    ways=down                             over relations: down, or both, to summaries too
    order=walk                            of chunks: walk, or fused with the order by vector (reciprocal ranks)

Questions of type Single are a set of their own, as there. Without --variants, those of the documentation are measured.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from benchmarks.bridge_ranking import interval
from benchmarks.source_questions import ask
from benchmarks.source_ranking import FIGURES, Case, Figures, cases, figures_of, options
from benchmarks.source_variants import AS_IS, Variant, parsed, ranked

DEFAULT: Final = (
    AS_IS,
    "starts=names+entities+bridge+chunks",
    "starts=names+entities+chunks+words",
    "starts=names+chunks+words",
    "starts=names+entities+bridge+words",
    "starts=entities+bridge+chunks+words",
    "starts=names",
    "starts=chunks",
    "starts=words",
    "ways=both",
    "order=fused",
    "nearest=3",
    "nearest=5",
    "words=5",
    "words=20",
    "shares=1/1/1/1",
    "worth=above",
    "worth=rank",
    "worth=score",
    "tolerance=1e-5",
    "tolerance=1e-4",
    "tolerance=1e-3",
    "restart=0.1",
    "restart=0.2",
    "restart=0.3",
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--variants", nargs="+", default=DEFAULT, metavar="SPEC")
    arguments = parser.parse_args()
    try:
        variants = {spec: parsed(spec) for spec in (AS_IS, *arguments.variants)}
    except ValueError as error:
        parser.error(str(error))
    for case in cases(arguments):
        measured = asyncio.run(_measured(case, variants))
        for name, _, chosen in case.kinds():
            for spec, figures in measured.items():
                more = figures[chosen] - measured[AS_IS][chosen]
                _tell(arguments.embedder, name, spec, figures[chosen], more)


async def _measured(case: Case, variants: Mapping[str, Variant]) -> dict[str, Figures]:
    """Return the figures of every question, by variant."""
    asked = await ask(case)
    limit = case.config.retrieval.top_sources
    measured: dict[str, list[list[float]]] = {spec: [] for spec in variants}
    for question, found, engine_rows in zip(case.questions, asked.found, asked.engine_rows, strict=True):
        for spec, variant in variants.items():
            rows = ranked(asked.index.walk_graph, asked.index.provenance, found, variant)[:limit]
            if spec == AS_IS and rows != engine_rows:
                raise RuntimeError(
                    f"the starting points of {question.text!r} are not the engine's: mend this benchmark"
                )
            measured[spec].append(figures_of([asked.passages[row] for row in rows], question.gold))
    return {spec: np.array(rows) for spec, rows in measured.items()}


def _tell(embedder: str, name: str, spec: str, figures: Figures, more: Figures) -> None:
    line: dict[str, Any] = {"benchmark": "source_parts", "set": name, "embedder": embedder, "variant": spec}
    line |= {"questions": len(figures)} | dict(zip(FIGURES, figures.mean(axis=0).round(3).tolist(), strict=True))
    if spec != AS_IS:
        line["more than as it is"] = {figure: interval(more[:, at]) for at, figure in enumerate(FIGURES)}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
