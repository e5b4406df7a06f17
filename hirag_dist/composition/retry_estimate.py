"""Estimate of what `retry` would call and cost, from the dead letters and the bill of the last build. Makes no call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hirag_dist.composition.build_records import build_usage, dead_letters, last_build, no_build
from hirag_dist.config.model import Config
from hirag_dist.core.text.tokens import counter
from hirag_dist.execution.dead_letters import load_drops
from hirag_dist.indexing.cost_estimate import StageEstimate, Work, stages_of
from hirag_dist.llm.usage import total_cost
from hirag_dist.storage.store import Store

# stage of a letter, in the order of a build → its role, and the beginning of its label on the bill
_ASKED: Mapping[str, tuple[str, str]] = {
    "extract": ("extract", "extract"),
    "claims": ("extract", "claims"),
    "describe": ("summarise", "describe"),
    "resolve": ("summarise", "resolve"),
    "meta_types": ("summarise", "meta types"),
    "summarise": ("summarise", "summarise"),
    "reports": ("report", "report"),
}
_REPEATED = ("summarise", "reports")  # a reply changes the units of the layers or levels above it
_EMBED = ("chunk vectors", "embed")
_REPLY_TOKENS = 150  # of a stage without a reply on the bill


@dataclass(frozen=True)
class RetryEstimate:
    """Estimate of a retry.

    Attributes:
        letters: open dead letters, by stage; those of `read` and `import` need no model.
        dropped: letters whose loss was accepted, which are not asked again.
        finished: whether the last build ran to its end. A retry of another one also makes the calls that are left.
        stages: the letters themselves, one call each.
        later: at most in addition: every call of the later stages again. Units that the new replies do not reach are
            found in the ledger.
        seconds: of both, one after the other.
    """

    letters: Mapping[str, int]
    dropped: int
    finished: bool
    stages: tuple[StageEstimate, ...]
    later: tuple[StageEstimate, ...]
    seconds: float

    @property
    def calls(self) -> tuple[int, int]:
        """The least and the largest number of calls."""
        least = sum(stage.calls for stage in self.stages)
        return least, least + sum(stage.calls for stage in self.later)

    @property
    def cost_usd(self) -> tuple[float | None, float | None]:
        """The least and the largest cost; None where the price of an endpoint is not known."""
        least = total_cost(stage.cost_usd for stage in self.stages)
        return least, total_cost(stage.cost_usd for stage in (*self.stages, *self.later))


def estimate_retry(index_uri: str, config: Config, latency_s: float | None = None) -> RetryEstimate:
    """Return the estimate of `run_retry`.

    Args:
        config: with the endpoints, their prices and limits.
        latency_s: see `estimate_build`.

    Raises:
        SnapshotNotFound: there is no record of a build.
    """
    store = Store(index_uri)
    record = last_build(store)
    if record is None:
        raise no_build(store)
    rows = dead_letters(store, record, load_drops(store), ("stage", "unit_id", "request"))
    letters = [row for row in rows if row["dropped"] is None]
    usage = build_usage(record)
    works = list(_letter_works(letters, usage, config))
    first = min((list(_ASKED).index(work.stage) for work in works), default=None)
    later = [] if first is None else list(_later_works(first, usage, config))
    stages, seconds = stages_of(works, config, latency_s)
    more, more_seconds = stages_of(later, config, latency_s)
    counts: dict[str, int] = {}
    for row in letters:
        counts[row["stage"]] = counts.get(row["stage"], 0) + 1
    finished = record["state"] == "done"
    return RetryEstimate(counts, len(rows) - len(letters), finished, stages, more, seconds + more_seconds)


def _letter_works(
    letters: Sequence[Mapping[str, Any]], usage: Sequence[Mapping[str, Any]], config: Config
) -> Iterator[Work]:
    count = counter(config.tokenizer)
    for stage, (role, label) in _ASKED.items():
        requests = [row["request"] for row in letters if row["stage"] == stage]
        if not requests:
            continue
        calls, _, written = _sums(usage, (label,))
        each = written / calls if calls and written else _REPLY_TOKENS
        yield Work(stage, _target(role, config), len(requests), sum(map(count, requests)), each * len(requests))


def _later_works(first: int, usage: Sequence[Mapping[str, Any]], config: Config) -> Iterator[Work]:
    for at, (stage, (role, label)) in enumerate(_ASKED.items()):
        if at > first or (at == first and stage in _REPEATED):
            calls, read, written = _sums(usage, (label,))
            if calls:
                yield Work(stage, _target(role, config), calls, read, written)
    calls, read, _ = _sums(usage, _EMBED)
    if calls:
        yield Work("embed", config.llm.roles.embed, calls, read, 0)


def _target(role: str, config: Config) -> Any:
    return getattr(config.llm.roles, role)


def _sums(usage: Sequence[Mapping[str, Any]], labels: tuple[str, ...]) -> tuple[int, int, int]:
    """Return calls, input tokens and output tokens of the stages whose labels begin so, whenever they were paid."""
    rows = [row for row in usage if row["stage"].startswith(labels)]
    calls, read, written = (sum(row[name] for row in rows) for name in ("calls", "input_tokens", "output_tokens"))
    return calls, read, written
