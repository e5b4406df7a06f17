"""One run on an index, measured: what it paid by stage, time, memory, and which texts of the base are kept."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.build import start_simulator
from benchmarks.settings import HASHING
from hirag_dist.application.drift import measure_drift
from hirag_dist.application.index_result import IndexResult
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.execution.events import StageFailedEvent, TaskFinished, UsageRecorded
from hirag_dist.llm.usage import ModelUsage, UsageMeter
from hirag_dist.protocols import EventListener
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store

EXTRACTION = "extract"
_EMBEDDING_ROLE = "embed"
_CHAT_ROLES = ("extract", "summarise", "report", "answer", "judge")
_NOTES = ("documents", "debt", "cost")  # of an update, in the manifest
_STAND_IN = "stand-in"
_CLEAR_PEAK = "5"  # written to clear_refs: the peak of resident memory starts again
_Texts = dict[str, tuple[str, str]]  # id → text and origin
Work = Callable[[Sequence[EventListener]], IndexResult]


@dataclass
class StageTokens:
    """Event listener that adds up calls and tokens of chat that this run paid, by stage.

    Attributes:
        calls, tokens: first word of the stage's label → sums. Embeddings are not counted.
        embedding_tokens: of all stages.
    """

    calls: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    embedding_tokens: int = 0

    def __call__(self, event: object) -> None:
        """Add the usage of an event."""
        if isinstance(event, TaskFinished | UsageRecorded | StageFailedEvent):
            stage = event.label.split()[0]
            for (role, _, _), use in event.usage.uses.items():
                if role == _EMBEDDING_ROLE:
                    self.embedding_tokens += use.sent_tokens
                else:
                    self.calls[stage] += use.calls - use.ledger_hits
                    self.tokens[stage] += use.sent_tokens


def measured(work: Work) -> dict[str, Any]:
    """Run once; return the figures of the run."""
    paid = StageTokens()
    clear_peak_memory()
    load = os.getloadavg()[0]
    before, started = os.times(), time.perf_counter()
    result = work([paid])
    wall, after = time.perf_counter() - started, os.times()
    sent = chat_usage(result.sent)
    return {
        "documents": result.manifest.counts["documents"],
        "calls": sent.calls - sent.ledger_hits,
        "tokens": sent.sent_tokens,
        "tokens_by_stage": {stage: tokens for stage, tokens in sorted(paid.tokens.items()) if tokens},
        "calls_by_stage": {stage: calls for stage, calls in sorted(paid.calls.items()) if calls},
        "embedding_tokens": paid.embedding_tokens,
        "wall_s": round(wall, 2),
        "cpu_s": round(sum(after[:4]) - sum(before[:4]), 2),
        "peak_mb": peak_memory_mb(),
        "load": round(load, 1),
        "snapshot": result.snapshot_id,
        "changed": result.changed,
    }


def drift_figures(index_uri: str) -> dict[str, Any]:
    """Return the figures of the current snapshot's drift that have a gate, and the agreement with the shadow."""
    report = measure_drift(open_snapshot(Store(index_uri)))
    figures: dict[str, Any] = {f"{gate.part} {gate.name}".strip(): round(gate.value, 4) for gate in report.gates}
    figures["jaccard"] = [round(layer.clusters.jaccard, 3) for layer in report.layers]
    if report.communities is not None:
        figures["communities jaccard"] = round(report.communities.leaves.jaccard, 3)
    return figures | {"failed": [f"{gate.part} {gate.name}".strip() for gate in report.gates if not gate.holds]}


def chat_usage(meter: UsageMeter) -> ModelUsage:
    """Return the sums over all roles but that of embeddings."""
    total = ModelUsage()
    for (role, _, _), use in meter.uses.items():
        if role != _EMBEDDING_ROLE:
            total.add(use)
    return total


def units(index_uri: str, base_id: str, own_id: str) -> dict[str, Any]:
    """Return, of summaries and reports, how many have the same id and text as in the base, and how many were written.

    `stand_ins` are all that the index has; `gone` are those of the base that are no more. `update` has the debt and the
    budget.
    """
    store = Store(index_uri)
    base, own = open_snapshot(store, base_id), open_snapshot(store, own_id)
    found: dict[str, Any] = {}
    for name, texts in (("summaries", _summaries), ("reports", _reports)):
        before, now = texts(base), texts(own)
        origins = Counter(text[1] for key, text in now.items() if before.get(key) != text)
        found[name] = {
            "kept": len(now) - origins.total(),
            "written": origins.total() - origins[_STAND_IN],
            "stand_ins": sum(origin == _STAND_IN for _, origin in now.values()),
            "gone": sum(key not in now for key in before),
        }
    notes = own.manifest.notes["update"]
    return found | {"update": {name: notes[name] for name in _NOTES}}


def _summaries(snapshot: Snapshot) -> _Texts:
    rows = snapshot.table("summaries", ["layer", "cluster_id", "entities", "origin"]).to_pylist()
    return {f"{row['layer']} {row['cluster_id']}": (repr(row["entities"]), row["origin"]) for row in rows}


def _reports(snapshot: Snapshot) -> _Texts:
    rows = snapshot.table("reports", ["community_id", "title", "summary", "findings", "origin"]).to_pylist()
    return {row["community_id"]: (repr((row["title"], row["summary"], row["findings"])), row["origin"]) for row in rows}


@contextmanager
def configured(settings: dict[str, Any], builtin: bool = False) -> Iterator[Config]:
    """Give a configuration with all models at a `simulate-llm` of its own, in one process without Ray.

    Args:
        settings: keys of the configuration → values.
        builtin: take the built-in models in this process instead.
    """
    if builtin:
        yield load_config(
            None, {}, {"execution.executor": "inline", "update.max_ratio": 3, **HASHING} | settings
        ).config
        return
    simulator, url = start_simulator()
    try:
        overrides: dict[str, Any] = {
            "execution.executor": "inline",
            "llm.endpoints.sim": {
                "base_url": url,
                "model": "simulated",
                "max_concurrent": 64,
                "output": "delimited",
            },
            "llm.endpoints.simvectors": {"base_url": url, "model": "simulated-embedding", "dim": 384},
            "llm.roles.embed": "simvectors",
        }
        overrides |= {f"llm.roles.{role}": "sim" for role in _CHAT_ROLES}
        yield load_config(None, {}, overrides | settings).config
    finally:
        simulator.terminate()
        simulator.wait()


def clear_peak_memory() -> None:
    """Have the system count this process's peak of resident memory from now on."""
    Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)


def peak_memory_mb() -> int:
    """Return the peak of resident memory of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return kib * 1024 // 1_000_000
