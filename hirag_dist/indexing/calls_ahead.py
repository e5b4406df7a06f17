"""The calls that a build is going to take, for displays of its progress."""

from __future__ import annotations

import pyarrow.compute as pc

from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.events import CallsExpected
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.cost_estimate import remote_calls, works_of_build


def announce_calls(context: BuildContext, chunks: Dataset) -> None:
    """Emit the estimated calls of an index of these chunks, unless built-in models make all of it."""
    config = context.config
    if not any(endpoint.is_remote for endpoint in config.llm.endpoints.values()):
        return
    sizes = context.datasets.read(chunks, ["n_tokens"])["n_tokens"]
    works = works_of_build(len(sizes), pc.sum(sizes).as_py() or 0, config, context.prompts)
    expected = {stage: calls for stage, calls in remote_calls(works, config).items() if calls}
    if expected:
        context.runner.emit(CallsExpected(expected))
