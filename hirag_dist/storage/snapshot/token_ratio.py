"""Tokens that a snapshot's replies used, relative to the size of its corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from hirag_dist.storage.snapshot.reader import Snapshot


def tokens_per_corpus_token(snapshot: Snapshot, usage: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the tokens of replies, in and out (USAGE), for each token of a snapshot's chunks; None without any.

    Returns:
        `total`, and `by_stage`: label → the ratio of one stage. Tokens that overlapping chunks share count in each.
    """
    corpus_tokens = pc.sum(snapshot.table("chunks", ["n_tokens"])["n_tokens"]).as_py()
    if not corpus_tokens:
        return None
    stages: dict[str, int] = {}
    for row in usage:
        stages[row["stage"]] = stages.get(row["stage"], 0) + row["input_tokens"] + row["output_tokens"]
    return {
        "total": sum(stages.values()) / corpus_tokens,
        "by_stage": {stage: tokens / corpus_tokens for stage, tokens in stages.items()},
    }
