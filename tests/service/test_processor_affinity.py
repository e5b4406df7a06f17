"""Processors of the processes of a service."""

from __future__ import annotations

import os
import threading

import pytest

from hirag_dist.service.processor_affinity import bind_process, processor_for


@pytest.mark.parametrize(
    ("processes", "allowed", "pins", "expected"),
    [
        (2, [0, 1], None, [0, 1]),
        (4, [0, 1], None, [0, 1, 0, 1]),
        (3, [0, 1], None, [None] * 3),  # one processor would get two of them
        (2, [6, 7, 8], None, [None, None]),  # a node that others use too
        (2, [6, 7, 8], True, [6, 7]),
        (2, [0, 1], False, [None, None]),
    ],
)
def test_processes_that_divide_evenly_have_a_processor_each(
    processes: int, allowed: list[int], pins: bool | None, expected: list[int | None]
) -> None:
    assert [processor_for(process, processes, allowed, pins) for process in range(processes)] == expected


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system binds no threads")
def test_threads_that_a_bound_thread_starts_stay_with_it() -> None:
    found: list[set[int]] = []

    def bound() -> None:
        bind_process(1, 2, True)
        inner = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
        inner.start()
        inner.join()
        found.append(os.sched_getaffinity(0))

    before = os.sched_getaffinity(0)
    thread = threading.Thread(target=bound)
    thread.start()
    thread.join()
    expected = {sorted(before)[1 % len(before)]}
    assert found == [expected, expected]
    assert os.sched_getaffinity(0) == before


def test_a_system_that_refuses_leaves_the_process_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, set[int]]] = []

    def refuse(process: int, processors: set[int]) -> None:
        asked.append((process, processors))
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 5}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    bind_process(1, 2, None)
    assert asked == [(0, {5})]
