"""Embedders that need no key: passages of evidence found by vector alone, and passages a CPU second.

    python -m benchmarks.embedders FOLDER… [--embedders hashing all-minilm-l6-v2-int8 …]

FOLDER: as of `source_ranking.py`. A passage is one text, of which MiniLM reads the first 256 word pieces. One JSON line
a set and embedder: the share of gold passages among the first 5, and the speed on one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.source_ranking import figures_of, read_passages, read_questions
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.llm.endpoints.minilm import NAME, MiniLmEmbedder, is_installed

HASHING = "hashing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    names = [HASHING, *([NAME] if is_installed() else [])]
    parser.add_argument("--embedders", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    threadpool_limits(1)
    for name in arguments.embedders:
        embedder = HashingEmbedder() if name == HASHING else MiniLmEmbedder()
        embedder.embed_now(["a probe"])  # reads the weights
        for folder in arguments.folders:
            print(json.dumps({"benchmark": "embedders", "embedder": name} | measured(embedder, folder)), flush=True)


def measured(embedder: HashingEmbedder | MiniLmEmbedder, folder: Path) -> dict[str, str | float]:
    """Return recall and speed of one embedder in one set."""
    passages, questions = list(read_passages(folder)), read_questions(folder)
    started = time.process_time()
    rows = embedder.embed_now([passage.text for passage in passages])
    seconds = time.process_time() - started
    scores = embedder.embed_now([question.text for question in questions]) @ rows.T
    ranked = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    found = [
        figures_of([passages[place].evidence_id for place in row], question.gold)[1]
        for row, question in zip(ranked, questions, strict=True)
    ]
    return {
        "set": folder.name,
        "passages": len(passages),
        "questions": len(questions),
        "recall@5": round(float(np.mean(found)), 3),
        "passages a CPU second": round(len(passages) / seconds, 1),
    }


if __name__ == "__main__":
    main()
