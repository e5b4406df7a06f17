"""Report of a soak: answers by the event that they were due in, growth of processes, alerts and their reasons."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

QUIET = "quiet"
SETTLING_S = 20.0  # after an event, in which its effects still end
WARM_UP_S = 120.0  # of a process: caches fill, and are no leak
MIN_SLOPE_S = 300.0  # of samples, for a slope that says anything
_NUMBER = re.compile(r"\d+(\.\d+)?")  # errors that differ in numbers alone are counted together
NOTICED_S = 90.0  # until a metric is scraped, a rule evaluated and an alert seen


@dataclass
class Event:
    """Something that was done to the service, in seconds since the soak began.

    Attributes:
        ended: None while it lasts.
        fails: whether answers may fail in its window.
        alerts: alerts that it explains: name → seconds that the event has to last for the alert to be due.
        detail: what happened.
    """

    name: str
    started: float
    ended: float | None = None
    fails: bool = False
    alerts: Mapping[str, float] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)

    def covers(self, second: float) -> bool:
        """Return whether a second is in the event's window."""
        return self.started <= second and (self.ended is None or second <= self.ended + SETTLING_S)

    @property
    def seconds(self) -> float:
        """Its duration; infinity while it lasts."""
        return float("inf") if self.ended is None else self.ended - self.started


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: when it was due, how long it took, and why it failed, "" if it did not."""

    due: float
    ms: float
    kind: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Firing:
    """A time in which an alert fired."""

    alert: str
    started: float
    ended: float


def event_of(second: float, events: Sequence[Event], background: frozenset[str]) -> Event | None:
    """Return the event in whose window a second is, None for none.

    Of several it is the one that began last; those named in `background`, which come again and again, only if there is
    no other.
    """
    found = [event for event in events if event.covers(second)]
    chosen = [event for event in found if event.name not in background] or found
    return max(chosen, key=lambda event: event.started, default=None)


def answers_by_event(
    asked: Iterable[Asked], events: Sequence[Event], background: frozenset[str], slow_ms: float
) -> dict[str, dict[str, Any]]:
    """Return requests, failures, slow answers and latencies by event name, and of the quiet time."""
    rows: dict[str, list[Asked]] = defaultdict(list)
    for each in asked:
        event = event_of(each.due, events, background)
        rows[QUIET if event is None else event.name].append(each)
    return {name: _figures(some, slow_ms) for name, some in rows.items()}


def _figures(asked: Sequence[Asked], slow_ms: float) -> dict[str, Any]:
    answered = np.array([each.ms for each in asked if not each.error])
    errors: dict[str, int] = defaultdict(int)
    for each in asked:
        if each.error:
            errors[f"{each.kind}: {_NUMBER.sub('…', each.error)[:160]}"] += 1
    return {
        "requests": len(asked),
        "failed": sum(errors.values()),
        "slow": int((answered > slow_ms).sum()),
        **{f"p{share}_ms": round(float(np.percentile(answered, share)), 1) for share in (50, 99) if len(answered)},
        "longest_ms": round(float(answered.max(initial=0.0)), 1),
        "errors": dict(sorted(errors.items(), key=lambda item: -item[1])[:4]),
    }


def unexplained_failures(asked: Iterable[Asked], events: Sequence[Event]) -> list[Asked]:
    """Return the failed requests that were due in no window of an event in which answers may fail."""
    return [each for each in asked if each.error and not any(one.fails and one.covers(each.due) for one in events)]


def slope_per_hour(seconds: Sequence[float], values: Sequence[float]) -> float | None:
    """Return by how much a value grows in an hour, None from too short a time.

    It is the median of the slopes between all pairs of samples (Theil and Sen), which single peaks do not move.
    """
    at, value = np.asarray(seconds, np.float64), np.asarray(values, np.float64)
    if len(at) < 3 or at[-1] - at[0] < MIN_SLOPE_S:
        return None
    first, second = np.triu_indices(len(at), 1)
    return round(float(np.median((value[second] - value[first]) / (at[second] - at[first]))) * 3600, 2)


def growth(samples: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return first and last values and slopes of each process, without its first two minutes.

    Args:
        samples: with `at`, `who`, `pid` and the values of `names`.
    """
    by_process: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for sample in samples:
        by_process[str(sample["who"]), int(sample["pid"])].append(sample)
    rows = []
    for (who, pid), own in sorted(by_process.items()):
        warm = [each for each in own if each["at"] >= own[0]["at"] + WARM_UP_S] or own[-1:]
        row: dict[str, Any] = {"who": who, "pid": pid, "seconds": round(own[-1]["at"] - own[0]["at"])}
        for name in names:
            row[name] = [warm[0][name], warm[-1][name]]
            row[f"{name}_per_h"] = slope_per_hour([each["at"] for each in warm], [each[name] for each in warm])
        rows.append(row)
    return rows


def firings(times: Mapping[str, Sequence[float]], step_s: float) -> list[Firing]:
    """Return the times in which alerts fired, from the seconds at which each was seen to."""
    found = []
    for alert, seconds in times.items():
        started = last = None
        for second in sorted(seconds):
            if started is None or last is None:
                started = second
            elif second > last + 1.5 * step_s:
                found.append(Firing(alert, started, last))
                started = second
            last = second
        if started is not None and last is not None:
            found.append(Firing(alert, started, last))
    return sorted(found, key=lambda each: each.started)


def verdicts(fired: Sequence[Firing], events: Sequence[Event], until: float) -> list[dict[str, Any]]:
    """Return a line for each alert that fired, right if an event explains it, and for each that was due and did not.

    Args:
        until: when the soak ended; an alert that was due within `NOTICED_S` of it is not missed.
    """
    lines = []
    for each in fired:
        causes = [
            event
            for event in events
            if each.alert in event.alerts
            and event.started <= each.started
            and (event.ended is None or each.started <= event.ended + NOTICED_S)
        ]
        cause = max(causes, key=lambda event: event.started, default=None)
        line = {"alert": each.alert, "fired_s": round(each.started), "until_s": round(each.ended)}
        lines.append(line | {"right": cause is not None, "event": cause.name if cause else None})
    for event in events:
        for alert, least_s in event.alerts.items():
            due = event.started + least_s + NOTICED_S
            ended = until if event.ended is None else event.ended
            on_time = any(
                each.alert == alert and each.started <= ended + NOTICED_S and each.ended >= event.started
                for each in fired
            )
            if event.seconds >= least_s and due <= until and not on_time:
                lines.append({"alert": alert, "fired_s": None, "right": False, "event": event.name})
    return lines
