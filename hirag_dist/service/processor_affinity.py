"""Processors of the processes of a service.

A process computes in one thread and talks to the network in another, and the interpreter runs one of them at a time.
On two processors each hand-over wakes an idle processor and moves the reply between caches; on one it is a switch.
"""

from __future__ import annotations

import os
from contextlib import suppress


def processor_for(process: int, processes: int, allowed: list[int], pins: bool | None) -> int | None:
    """Return the processor that a process of a service is bound to; None: it may use all of `allowed`.

    Args:
        process: its number, from 0.
        processes: of the service.
        allowed: processors that the service may use.
        pins: as `service.pin_processes`; None binds processes where each processor gets as many of them.

    >>> processor_for(1, 2, [4, 5], None), processor_for(1, 3, [4, 5], None), processor_for(3, 4, [4, 5, 6], True)
    (5, None, 4)
    """
    if pins is None:
        pins = processes % len(allowed) == 0
    return allowed[process % len(allowed)] if pins else None


def bind_process(process: int, processes: int, pins: bool | None) -> None:
    """Bind this thread, and the threads that it starts, to their processor; does nothing where the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return
    with suppress(OSError):
        processor = processor_for(process, processes, sorted(os.sched_getaffinity(0)), pins)
        if processor is not None:
            os.sched_setaffinity(0, {processor})
