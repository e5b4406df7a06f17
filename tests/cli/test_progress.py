"""Progress of a build: phases on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from hirag_dist.cli._progress import ProgressBars
from hirag_dist.execution.events import CallsExpected, CallsProgress, StageFinished, StageStarted
from hirag_dist.llm.limits.protocol import CallTotals

CALLS = CallTotals(answered=40, tokens=45_600, usd=0.5, limited=3, in_flight=8, pause_s=20.0, timeouts=1, refused=2)
EXPECTED = {"extract": 100, "reports": 20}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


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
        "extract      16 of 64 units, 16 kept, about 37 calls left in this stage, 1 min",
        "hierarchy",
        "communities",
        "publish",
        "             8 calls in flight, 760 tokens/s, the endpoint asks to wait 20 s",
        "             40 replies, 2 refused, 1 timed out, 3 × 429, 45.6k tokens, $0.5000",
        "             in all about 57 calls left, about 1 min at the present rate",
    ]
