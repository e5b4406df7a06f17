"""Notice of compilations: `numba_jit` reports the first of a process, without a log of its own."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def on_first_compilation(listener: Callable[[], None]) -> None:
    """Call a function once, when this process compiles a function that is not in the cache."""
    _listeners.append(listener)


def report_compilation() -> None:
    """Call the listeners, each once."""
    while _listeners:
        _listeners.pop()()
