"""Do the sentences that a citation points at support the statement? Recorded claims with quotations say.

A claim of a GraphRAG output folder has a description, which a model wrote, and the quotation that it rests on. Each
description is taken as a sentence of an answer that cites the claim's text unit. Counted are the claims that get a
sentence, and of these the ones whose sentence touches the quotation.

    python benchmarks/citation_support.py FOLDER… [--coverage 0.3 0.4 0.5]

FOLDER holds covariates.parquet and text_units.parquet, or the same with `create_final_` in front.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from hirag_dist.core.retrieval import support

_QUOTES = ' "“”'
_BEGINNING = 60  # characters by which a quotation is found


def claims(folder: Path) -> Iterator[tuple[str, str, int, int]]:
    """Yield (description, text, start, end of the quotation in it) of the claims whose quotation is found."""
    prefix = "" if (folder / "covariates.parquet").exists() else "create_final_"
    units = pq.read_table(folder / f"{prefix}text_units.parquet", columns=["id", "text"]).to_pylist()
    texts = {row["id"]: row["text"] for row in units}
    for row in pq.read_table(folder / f"{prefix}covariates.parquet").to_pylist():
        text, quotation = texts.get(row["text_unit_id"], ""), (row["source_text"] or "").strip(_QUOTES)
        start = text.find(quotation[:_BEGINNING])
        if quotation and start >= 0:
            yield row["description"], text, start, start + len(quotation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--coverage", nargs="+", type=float, default=[support.MIN_COVERAGE])
    args = parser.parse_args()
    cases = [case for folder in args.folders for case in claims(folder)]
    for coverage in args.coverage:
        support.MIN_COVERAGE = coverage
        counts = {"claims": len(cases), "with_sentence": 0, "right": 0}
        for description, text, start, end in cases:
            spans = support.supporting_spans(f"{description.rstrip('.')} [S1].", "S1", text)
            counts["with_sentence"] += bool(spans)
            counts["right"] += any(low < end and start < high for low, high in spans)
        print(json.dumps({"coverage": coverage} | counts))


if __name__ == "__main__":
    main()
