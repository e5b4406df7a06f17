"""Cooperative steps: functions that yield after each bounded part of their work and return the result at the end.

The driver checks the deadline between two steps and gives other work its turn.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]


def all_at_once(steps: Steps[T]) -> T:
    """Do all steps one after the other, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
