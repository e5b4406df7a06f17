"""Progress of a build: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from hirag_dist.cli._progress import LINE_INTERVAL_S, ProgressBars, spent_line
from hirag_dist.execution.events import CallsProgress, ExecutorStarting, StageFinished, StageStarted, TaskFinished
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply

CALLS = CallTotals(answered=1_234, tokens=45_600, usd=0.5, limited=3, in_flight=8, pause_s=20.0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def meter() -> UsageMeter:
    made = UsageMeter()
    made.count("extract", "m", "llm", ChatReply("", input_tokens=45_000, output_tokens=600), 0.5, from_ledger=False)
    made.use("extract", "m", "llm").rate_limited = 3
    return made


def test_the_bar_of_a_stage_shows_calls_before_a_task_is_done() -> None:
    console, clock = Console(width=80, force_terminal=True, file=io.StringIO(), record=True), Clock()
    with ProgressBars(True, console, clock) as bars:
        bars(StageStarted("extract", 4, 1, 576, 144))
        bars(CallsProgress("extract", CallTotals(answered=1_134)))
        clock.now = 60.0
        bars(CallsProgress("extract", CALLS))
    line = console.export_text().rpartition("extract")[2].splitlines()[0].rstrip()  # as it was drawn last
    assert "144/576" in line
    assert "1.2k calls 100/min 45.6k tok $0.5000 3×429" in line


def test_the_bar_of_a_finished_stage_shows_what_it_used() -> None:
    console = Console(width=80, force_terminal=True, file=io.StringIO(), record=True)
    with ProgressBars(True, console) as bars:
        bars(StageStarted("extract", 4, 1, 576, 144))
        bars(TaskFinished("extract", 432, 0, 1.0, meter()))
        bars(StageFinished("extract", False, 576, 0, 2.5, meter()))
        bars(StageFinished("merge", True, 10, 0, 0.1))
    line = "extract" + console.export_text().rpartition("extract")[2].splitlines()[0].rstrip()
    assert "576/576" in line
    assert "45.6k tok $0.5000 3×429" in line
    assert len(line) <= 80


def test_lines_where_there_is_no_terminal() -> None:
    console, clock = Console(width=200, file=io.StringIO()), Clock()
    with ProgressBars(True, console, clock) as bars:
        bars(ExecutorStarting("ray"))
        bars(StageStarted("extract", 4, 1, 576, 144))
        for second in range(65):
            clock.now = float(second)
            bars(CallsProgress("extract", CallTotals(answered=2 * second, tokens=10, in_flight=1)))
        bars(StageFinished("extract", False, 576, 0, 65.0, meter()))
        bars(StageFinished("merge", True, 10, 0, 0.1))
        bars(StageStarted("graph", 1, 0, 10))
        bars(StageFinished("graph", False, 10, 0, 0.1))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == [
        "starting Ray",
        "extract: 144 of 576 units, 60 calls 120/min 10 tok",
        "extract: 144 of 576 units, 120 calls 120/min 10 tok",
        "extract: 576 units, 45.6k tok $0.5000 3×429, 65.0 s",
    ]
    assert LINE_INTERVAL_S == 30


def test_nothing_is_shown_where_it_is_not_wanted() -> None:
    console = Console(width=200, file=io.StringIO())
    with ProgressBars(False, console) as bars:
        bars(ExecutorStarting("ray"))
        bars(StageStarted("extract", 4, 0, 576))
        bars(CallsProgress("extract", CALLS))
        bars(StageFinished("extract", False, 576, 0, 65.0, meter()))
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_a_stage_without_a_call_has_no_use() -> None:
    assert spent_line(UsageMeter()) == ""
