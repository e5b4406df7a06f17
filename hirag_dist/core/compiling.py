"""Compiled functions: where their machine code is kept, and what happens where it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Return the function compiled by numba; it lets other threads run.

    The machine code is kept beside the source, in `NUMBA_CACHE_DIR`, or in the user's cache folder, whichever can be
    written to first. Where none can, every process compiles for itself, which takes seconds.
    """
    made: Any
    try:
        made = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba found no folder to keep the code in
        made = numba.njit(nogil=True)(function)
    return cast(F, made)
