"""Code on arrays: compiled by numba, with what happens where its machine code cannot be kept; or run on CuPy.

`Steps` are functions that yield after each bounded part of their work and return the result at the end. The driver
checks the deadline between two steps and gives other work its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

# Decorates functions of finite rows: on some processors with AVX-512, OpenBLAS raises floating-point flags in products
# with a few float32 vectors, and NumPy would warn of an invalid value.
finite_products = np.errstate(invalid="ignore", over="ignore")


def to_numpy(xp: Any, values: Any) -> Any:
    """Return values of the array module `xp` as numpy's; numpy's own as they are."""
    return values if xp is np else xp.asnumpy(values)


F = TypeVar("F", bound=Callable[..., Any])
Element = TypeVar("Element", bound=np.generic)


def compiled(function: F) -> F:
    """Return the function compiled by numba.

    The machine code is cached next to the source, in `NUMBA_CACHE_DIR`, or in the user's cache folder: the first that
    is writable. Where none is, every process compiles for itself, which takes seconds.
    """
    return _compiled(function, nogil=False)


def compiled_inside(function: F) -> F:
    """Return a function compiled for calls by compiled functions only.

    Numba then writes no entry for calls by Python, which takes a third of the time in which it compiles a function of
    many arrays. The code becomes a part of its callers', for a call counts references of every array that it is given,
    which takes longer than most of these functions do. Called by Python, the function runs in Python.
    """
    return numba.extending.register_jitable(forceinline=True)(function)


def compiled_apart(function: F) -> F:
    """Return the function compiled as `compiled` does; while it works, other threads run.

    For what takes long: to let the interpreter go and to get it back costs more than a short function.
    """
    return _compiled(function, nogil=True)


def _compiled(function: F, *, nogil: bool) -> F:
    try:
        return cast(F, numba.njit(nogil=nogil, cache=True)(function))
    except RuntimeError:  # numba found no folder for the cache
        return cast(F, numba.njit(nogil=nogil)(function))


@compiled_inside
def lower_bound(values: NDArray[Any], first: int, last: int, value: Any) -> Any:
    """Return the first position in [first, last), where values ascend, whose value is at least the given one.

    `last` where there is none. `numpy.searchsorted` takes numba nearly a second to compile for each type.

    >>> lower_bound(np.array([1, 3, 5]), 0, 3, 4)
    2
    """
    while first < last:
        middle = (first + last) >> 1
        if values[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first


def read_only(array: NDArray[Element]) -> NDArray[Element]:
    """Return a view that cannot be written.

    Large functions are given what they read like this: else they are compiled for arrays of memory and once more for
    mapped ones, which cannot be written, and that takes a quarter of a minute each time.

    >>> read_only(np.zeros(2)).flags.writeable
    False
    """
    view = array.view()
    view.flags.writeable = False
    return view


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
