"""Calls and time left of a build, by the estimate and by the stages that are done."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hirag_dist.cli._progress import ProgressBars
from hirag_dist.execution.calls_left import CallsLeft
from hirag_dist.execution.events import CallsExpected, CallsProgress, StageFinished, StageStarted
from hirag_dist.llm.limits.protocol import CallTotals

EXPECTED = {"extract": 1000, "describe": 10, "summarise": 200, "reports": 300, "embed": 40}


def test_calls_of_a_stage_that_runs_are_taken_off() -> None:
    left = CallsLeft(EXPECTED)
    left.on_started("extract", 1.0)
    left.on_calls("extract", 400)
    assert left.calls == 1150
    left.on_calls("extract", 1200)  # more than was estimated
    assert left.calls == 550


def test_stages_that_are_over_have_nothing_left() -> None:
    left = CallsLeft(EXPECTED)
    left.on_started("extract", 1.0)
    left.on_started("summarise layer 0", 1.0)
    left.on_calls("summarise layer 0", 150)
    assert left.calls == 50 + 300 + 40
    left.on_started("summarise layer 1", 1.0)
    left.on_calls("summarise layer 1", 20)
    assert left.calls == 30 + 300 + 40
    left.on_finished("reports")
    assert left.calls == 0
    assert left.describe(60.0) == ""


def test_what_an_earlier_run_has_done_is_not_left() -> None:
    left = CallsLeft(EXPECTED)
    left.on_started("extract", 0.25)
    assert left.calls == 250 + 550


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0.0, "about 1,600 calls left"),
        (1550.0, "about 1,600 calls and a minute left"),
        (5.0, "about 1,600 calls and 5.2 h left"),
    ],
)
def test_the_time_follows_from_the_rate(rate: float, text: str) -> None:
    assert CallsLeft(EXPECTED).describe(rate) == text


def test_lines_show_what_is_left_of_the_whole_build() -> None:
    now = [0.0]
    console = Console(width=200, file=io.StringIO())
    with ProgressBars(True, console, lambda: now[0]) as bars:
        bars(CallsExpected(EXPECTED))
        bars(StageStarted("extract", 4, 0, 576))
        for second in range(35):
            now[0] = float(second)
            bars(CallsProgress("extract", CallTotals(answered=10 * second, in_flight=1)))
        bars(StageStarted("reports", 4, 0, 20))
        bars(StageFinished("reports", False, 20, 0, 2.0))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == "extract: 0 of 576 units, 300 calls 600/min 0 tok; about 1,200 calls and 2 min left"
