"""Contribution of each part of the ranking of sources: recall of gold passages with parts omitted or changed.

Every question is asked once, in mode `hirag`; its named and retrieved items are then ranked by each
variant, over the index's own graph. The variant that changes nothing must give the engine's sources in the engine's
order, or the benchmark stops. The figures are those of `source_ranking.py`, and the differences to that variant have a
paired bootstrap interval over questions.

    python benchmarks/source_parts.py FOLDER… [--index DIR] [--embedder hashing|minilm] [--variants SPEC …]

FOLDER and DIR are those of `source_ranking.py`. A SPEC is `as-is`, or has any of these, with commas between them:

    starts=names+entities+bridge+chunks   kinds of starting points that are left
    nearest=5                             starting points of a kind, 20 at most
    worth=squared                         what one counts by its score: squared (of what it has more than the last),
                                          above (not squared), rank (1 / rank) or score
    tolerance=1e-4                        of the walk
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
from benchmarks.source_ranking import FIGURES, Case, Figures, cases, figures_of, options, passages_of_chunks
from benchmarks.source_variants import AS_IS, FUSED, Found, Variant, parsed, ranked
from hirag_dist.composition.query import make_engine
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.types import Query

DEFAULT: Final = (
    AS_IS,
    "starts=names+entities+chunks",
    "starts=names+chunks",
    "starts=names+entities+bridge",
    "starts=entities+bridge+chunks",
    "starts=names",
    "starts=chunks",
    "ways=both",
    "order=fused",
    "starts=names+entities+bridge,order=fused",
    "nearest=3",
    "nearest=10",
    "worth=above",
    "worth=rank",
    "worth=score",
    "tolerance=1e-5",
    "tolerance=3e-4",
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
    config, snapshot = case.config, case.snapshot
    passages = passages_of_chunks(snapshot, case.passages)
    index = MappedIndex.open(snapshot)
    chunk_ids = snapshot.table("chunks")["chunk_id"].to_pylist()
    entity_rows = {own: row for row, own in enumerate(snapshot.table("entities")["entity_id"].to_pylist())}
    relation_rows = {own: row for row, own in enumerate(snapshot.table("relations")["relation_id"].to_pylist())}
    embedder, engine = make_embedder(config), make_engine(config, snapshot, Prompts())
    measured: dict[str, list[list[float]]] = {spec: [] for spec in variants}
    for question in case.questions:
        vector = (await embedder.embed([question.text]))[0]
        result = await engine.retrieve(Query(question.text, "hirag", vector=vector))
        rows, scores = index.nearest_chunks(vector, FUSED)
        found = Found(
            index.named_entities(question.text),
            [(entity_rows[item.entity_id], item.score) for item in result.local if item.score is not None],
            [(relation_rows[item.relation_id], item.score) for item in result.triples],
            list(zip(rows.tolist(), scores.tolist(), strict=True)),
        )
        limit = config.retrieval.top_sources
        for spec, variant in variants.items():
            chunks = [chunk_ids[row] for row in ranked(index.walk_graph, index.provenance, found, variant)[:limit]]
            if spec == AS_IS and chunks != [source.chunk_id for source in result.sources]:
                raise RuntimeError(
                    f"the starting points of {question.text!r} are not the engine's: mend this benchmark"
                )
            measured[spec].append(figures_of([passages[chunk] for chunk in chunks], question.gold))
    await engine.close()
    return {spec: np.array(rows) for spec, rows in measured.items()}


def _tell(embedder: str, name: str, spec: str, figures: Figures, more: Figures) -> None:
    line: dict[str, Any] = {"benchmark": "source_parts", "set": name, "embedder": embedder, "variant": spec}
    line |= {"questions": len(figures)} | dict(zip(FIGURES, figures.mean(axis=0).round(3).tolist(), strict=True))
    if spec != AS_IS:
        line["more than as it is"] = {figure: interval(more[:, at]) for at, figure in enumerate(FIGURES)}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
