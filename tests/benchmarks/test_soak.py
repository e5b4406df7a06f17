from __future__ import annotations

from benchmarks.soak_report import (
    Asked,
    Event,
    Firing,
    answers_by_event,
    firings,
    growth,
    slope_per_hour,
    unexplained_failures,
    verdicts,
)

NIGHTS = frozenset({"night"})


def test_an_answer_belongs_to_the_event_that_began_last() -> None:
    events = [Event("night", 0, 100), Event("roll", 50, 60), Event("full disk", 200, None, fails=True)]
    asked = [Asked(10, 1, "retrieve"), Asked(55, 2000, "retrieve"), Asked(110, 3, "retrieve"), Asked(150, 4, "answer")]
    asked += [Asked(210, 5, "retrieve", "gone"), Asked(75, 5, "retrieve", "gone")]
    found = answers_by_event(asked, events, NIGHTS, slow_ms=1000)
    assert {name: (line["requests"], line["failed"], line["slow"]) for name, line in found.items()} == {
        "night": (2, 0, 0),
        "roll": (2, 1, 1),
        "quiet": (1, 0, 0),
        "full disk": (1, 1, 0),
    }
    assert [each.due for each in unexplained_failures(asked, events)] == [75]


def test_errors_that_differ_in_numbers_are_counted_together() -> None:
    asked = [Asked(at, 1, "retrieve", f"Overloaded: the expected wait is 3.{at} s") for at in range(3)]
    found = answers_by_event(asked, [], NIGHTS, slow_ms=1000)["quiet"]
    assert found["errors"] == {"retrieve: Overloaded: the expected wait is … s": 3}


def test_slopes() -> None:
    seconds = list(range(0, 3600, 10))
    steady = [100.0 + (50 if at % 600 == 0 else 0) for at in seconds]
    assert slope_per_hour(seconds, steady) == 0
    assert slope_per_hour(seconds, [100 + at / 360 for at in seconds]) == 10
    assert slope_per_hour([0, 10, 20], [0, 1, 2]) is None


def test_growth_is_by_process_and_after_its_first_minutes() -> None:
    samples = [
        {"at": at, "who": "pod-0", "pid": pid, "mb": 100 if at - first >= 120 else 50}
        for pid, first in ((1, 0), (2, 1000))
        for at in range(first, first + 900, 10)
    ]
    assert [(row["pid"], row["mb"], row["mb_per_h"]) for row in growth(samples, ["mb"])] == [
        (1, [100, 100], 0),
        (2, [100, 100], 0),
    ]


def test_alerts_are_right_where_an_event_explains_them() -> None:
    events = [
        Event("lost store", 100, 400, alerts={"SwapFailed": 30}),
        Event("short", 500, 510, alerts={"Errors": 600}),
        Event("long", 600, 1800, alerts={"Errors": 600}),
    ]
    fired = firings({"SwapFailed": [150, 165, 180, 700, 715], "Down": [300]}, step_s=15)
    assert fired == [Firing("SwapFailed", 150, 180), Firing("Down", 300, 300), Firing("SwapFailed", 700, 715)]
    lines = verdicts(fired, events, until=2000)
    assert [(line["alert"], line["fired_s"], line["right"], line["event"]) for line in lines] == [
        ("SwapFailed", 150, True, "lost store"),
        ("Down", 300, False, None),
        ("SwapFailed", 700, False, None),
        ("Errors", None, False, "long"),
    ]
