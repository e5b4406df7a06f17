from __future__ import annotations

import numpy as np

from benchmarks.serving_updates import Answers, Interval, figures, windows

INTERVALS = [Interval(10.0, 20.0, 21.0), Interval(30.0, 40.0, 40.5)]


def test_a_request_belongs_to_the_window_in_which_it_was_due() -> None:
    due = np.array([9.9, 10.0, 19.9, 20.0, 21.9, 22.0, 35.0, 41.0, 41.5])
    found = windows(due, INTERVALS).tolist()
    assert found == ["idle", "update", "update", "swap", "swap", "idle", "update", "swap", "idle"]


def test_figures_count_failures_and_leave_the_warm_up_out() -> None:
    answers = Answers(
        rows=[(1.0, 900.0), (5.0, 2.0), (6.0, 4.0), (15.0, 8.0), (20.5, 30.0)],
        failed=[(2.0, "early"), (16.0, "Unavailable: gone")],
        first={"a": 1.0, "b": 21.0},
    )
    found = figures(answers, INTERVALS[:1], since=3.0)
    assert (found["requests"], found["failed"], found["snapshots"]) == (5, 1, 2)
    assert found["errors"] == ["Unavailable: gone"]
    assert found["windows"]["idle"]["requests"] == 2
    assert found["windows"]["idle"]["p50_ms"] == 3.0
    assert found["windows"]["update"] == {"requests": 2, "failed": 1, "p50_ms": 8.0, "p99_ms": 8.0, "longest_ms": 8.0}
    assert found["ratios"]["swap_over_idle"]["p50_ms"] == 10.0
    assert found["swap_s_longest"] == 1.0


def test_a_window_without_an_answer_has_no_percentiles() -> None:
    found = figures(Answers(rows=[(15.0, 8.0)]), INTERVALS[:1], since=0.0)
    assert found["windows"]["idle"] == {"requests": 0, "failed": 0, "longest_ms": 0.0}
    assert found["ratios"] == {"update_over_idle": {}, "swap_over_idle": {}}
