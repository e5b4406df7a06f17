"""Tests in virtual time: waiting takes no time, and the load of the machine does not matter."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from tests.llm.limits.virtual_time import run


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test on a loop whose clock jumps to the next timer."""

    @functools.wraps(test)
    def in_virtual_time(*arguments: Any, **named: Any) -> None:
        run(test(*arguments, **named))

    return in_virtual_time
