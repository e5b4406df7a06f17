"""Progress of a build as plain values."""

from __future__ import annotations

from typing import Any

from hirag_dist.execution.events import CallsExpected, CallsProgress, StageFinished, StageStarted, TaskFinished
from hirag_dist.execution.progress_report import ProgressReport
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply


def test_calls_of_stages_add_up_once() -> None:
    sent: list[dict[str, Any]] = []
    now = [0.0]
    report = ProgressReport(sent.append, lambda: now[0])
    usage = UsageMeter()
    for _ in range(4):
        usage.count("extract", "m", "main", ChatReply("", input_tokens=90, output_tokens=10), 0.01, from_ledger=False)
    report(CallsExpected({"extract": 10, "reports": 5}))
    report(StageStarted("extract", 2, 0, 20))
    report(CallsProgress("extract", CallTotals(answered=2, tokens=200, usd=0.02)))
    now[0] = 10.0
    report(CallsProgress("extract", CallTotals(answered=4, tokens=400, usd=0.04, limited=1, pause_s=2.0)))
    assert sent[-1] == {
        "stage": "extract",
        "units_done": 0,
        "units": 20,
        "calls": 4,
        "tokens": 400,
        "usd": 0.04,
        "per_minute": 12.0,
        "limited": 1,
        "waiting_s": 2.0,
        "calls_left": 11,
    }
    report(TaskFinished("extract", 20, 0, 1.0, usage))
    report(StageFinished("extract", False, 20, 0, 1.0, usage))
    assert (sent[-1]["units_done"], sent[-1]["calls"], sent[-1]["tokens"]) == (20, 4, 400)
    report(StageStarted("reports", 1, 0, 5))
    report(CallsProgress("reports", CallTotals(answered=1, tokens=100, usd=0.01)))
    assert (sent[-1]["calls"], sent[-1]["tokens"], sent[-1]["calls_left"]) == (5, 500, 4)
