"""Recorded costs of extraction: the budget of a removal is a multiple of what the removed documents have cost."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import ChatRequest
from tests.indexing.stages.test_claims import claim
from tests.indexing.test_updates import CLAIMING, LivingBench, corpus
from tests.toy_builds import extract, task_of

LONG_WORDS = " ".join(f"{'rather' * 9}{at}" for at in range(9))  # more characters a token than the others


def script(request: ChatRequest) -> str | None:
    """Reply to the tasks that the bench's own model does not know."""
    task = task_of(request)
    if task in ("extract-entities", "extract-relations"):
        kind = "entity" if task == "extract-entities" else "relation"
        return "\n".join(line for line in extract(request).splitlines() if line.startswith((kind, DONE)))
    return claim(request)


KEYS: list[dict[str, Any]] = [CLAIMING | {"gleaning_rounds": 1}, {"extraction": "two_step"}]


def used_by_extraction(snapshot: Snapshot) -> int:
    """Return the tokens of the stages that extract."""
    usage = snapshot.table("usage")
    usage = usage.filter(pc.is_in(usage["stage"], value_set=pa.array(["extract", "claims"])))
    return int(pc.sum(pc.add(usage["input_tokens"], usage["output_tokens"])).as_py() or 0)


@pytest.mark.parametrize("keys", KEYS)
def test_a_removal_counts_what_the_extraction_of_its_documents_has_cost(
    living: LivingBench, keys: dict[str, Any]
) -> None:
    texts = corpus(6) | {"long.txt": LONG_WORDS}
    first = living.index(texts, script=script, **keys)
    costs = first.table("extraction_costs")
    assert set(costs["chunk_id"].to_pylist()) == set(first.table("chunks")["chunk_id"].to_pylist())
    assert pc.sum(costs["tokens"]).as_py() == used_by_extraction(first) > 0
    own = used_by_extraction(living.fresh({"long.txt": LONG_WORDS}, script=script, **keys))
    after = living.remove(sources=("long.txt",), script=script, **keys)
    update = living.result.update
    assert update.extraction_tokens == own
    assert update.budget_tokens == 3 * own
    assert pc.sum(after.table("extraction_costs")["tokens"]).as_py() == used_by_extraction(first) - own


def test_the_costs_are_no_part_of_the_id(living: LivingBench) -> None:
    counted = living.index(corpus(3))
    living.bench.counts_tokens = False
    bench = LivingBench(living.folder / "other")
    bench.bench.counts_tokens = False
    bench.bench.base_id = None
    other = bench.index(corpus(3))
    assert other.manifest.snapshot_id == counted.manifest.snapshot_id
    assert other.table("extraction_costs") != counted.table("extraction_costs")
