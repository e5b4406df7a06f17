"""Progress of a build: phases on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from hirag_dist.cli._progress import LINE_INTERVAL_S, ProgressBars
from hirag_dist.execution.events import (
    CallsExpected,
    CallsProgress,
    ExecutorStarting,
    Publishing,
    StageFinished,
    StageStarted,
    TaskFinished,
)
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply

CALLS = CallTotals(answered=40, tokens=45_600, usd=0.5, limited=3, in_flight=8, pause_s=20.0, timeouts=1, refused=2)
EXPECTED = {"extract": 100, "reports": 20}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def meter() -> UsageMeter:
    made = UsageMeter()
    for _ in range(40):
        made.count("extract", "m", "llm", ChatReply("", input_tokens=1_000, output_tokens=140), 0.0125, False)
    made.use("extract", "m", "llm").rate_limited = 3
    return made


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_shows_every_phase_and_the_calls_of_the_one_that_runs() -> None:
    clock = Clock()
    bars = ProgressBars(True, Console(width=80, force_terminal=True, file=io.StringIO()), clock)
    bars(StageStarted("documents", 1, 0, 3))
    bars(StageFinished("documents", False, 3, 0, 0.1))
    bars(CallsExpected(EXPECTED))
    bars(StageStarted("extract", 4, 1, 64, 16))
    clock.now = 60.0
    bars(CallsProgress("extract", CALLS))
    console = Console(width=80, file=io.StringIO())
    console.print(bars)
    assert text_of(console).splitlines() == [
        "read         done in 0.0 s",
        "extract      16 of 64 units, 16 of an earlier run, about 37 calls left, 1 min",
        "hierarchy",
        "communities",
        "publish",
        "             8 calls in flight, 760 tokens/s, the endpoint asks to wait 20 s",
        "             40 replies, 2 refused, 1 timed out, 3 × 429, 45.6k tokens, $0.5000",
        "             calls left: about 57, about 1 min at the present rate",
    ]


def test_lines_where_there_is_no_terminal_come_once_a_minute() -> None:
    console, clock = Console(width=200, file=io.StringIO()), Clock()
    with ProgressBars(True, console, clock) as bars:
        bars(ExecutorStarting("ray"))
        bars(StageFinished("documents", True, 3, 0, 0.1))
        bars(StageStarted("extract", 4, 0, 64))
        for second in range(125):
            clock.now = float(second)
            bars(CallsProgress("extract", CallTotals(answered=second // 3, tokens=300 * (second // 3), in_flight=1)))
        bars(TaskFinished("extract", 64, 0, 125.0, meter()))
        bars(StageFinished("extract", False, 64, 0, 125.0, meter()))
        bars(StageFinished("merge layer 0", False, 10, 0, 0.1))
        bars(Publishing())
        clock.now = 126.0
    lines = text_of(console).splitlines()
    assert lines == [
        "starting Ray",
        "read: begun",
        "read: kept from an earlier run",
        "extract: begun",
        "extract: 0 of 64 units; 1 call in flight, 100 tokens/s; 20 replies, 6.0k tokens; calls left: unknown",
        "extract: 0 of 64 units; 1 call in flight, 100 tokens/s; 40 replies, 12.0k tokens; calls left: unknown",
        "extract: done in 2 min 4 s, 41 replies, 3 × 429, 45.6k tokens, $0.5000",
        "publish: begun",
        "publish: done in 2.0 s",
    ]
    assert LINE_INTERVAL_S == 60


def test_nothing_is_shown_where_it_is_not_wanted() -> None:
    console = Console(width=200, file=io.StringIO())
    with ProgressBars(False, console) as bars:
        bars(ExecutorStarting("ray"))
        bars(StageStarted("extract", 4, 0, 576))
        bars(CallsProgress("extract", CALLS))
        bars(StageFinished("extract", False, 576, 0, 65.0, meter()))
    assert text_of(console) == ""
