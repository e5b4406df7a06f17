"""Compiled functions: where their machine code is kept, and what happens where it cannot be."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numpy.typing import NDArray

from hirag_dist.core.compilation import report_compilation

_UNREADABLE = (AttributeError, ImportError, EOFError, TypeError, ValueError, pickle.UnpicklingError)

F = TypeVar("F", bound=Callable[..., Any])
Element = TypeVar("Element", bound=np.generic)


def compiled(function: F) -> F:
    """Return the function compiled by numba.

    The machine code is cached next to the source, in `NUMBA_CACHE_DIR`, or in the user's cache folder: the first that
    is writable. Where none is, every process compiles for itself, which takes seconds.
    """
    return _compiled(function, nogil=False)


def compiled_apart(function: F) -> F:
    """Return the function compiled as `compiled` does; while it works, other threads run.

    For what takes long: to let the interpreter go and to get it back costs more than a short function.
    """
    return _compiled(function, nogil=True)


class _RecoveringCache(FunctionCache):
    """numba's cache of one function. Unreadable files count as a miss and are written again.

    numba unpickles a whole index before it compares the date of the source, so an index that names a class which an
    upgrade renamed or moved would make every call fail.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        cache: Any = super()  # numba has no types
        found = None
        try:
            found = cache.load_overload(sig, target_context)
        except _UNREADABLE:
            with suppress(OSError):
                cache.flush()
        if found is None:
            report_compilation()
        return found


def compiled_bare(function: F) -> F:
    """Return the function compiled as `compiled` does, without counts of references to arrays.

    A function that takes tuples of arrays counts a reference to each at every call, which costs more than a short
    function: walks and searches of graphs take several times as long. Such a function can neither allocate arrays nor
    return them.
    """
    return _compiled(function, nogil=False, _nrt=False)


def _compiled(function: F, *, nogil: bool, **options: Any) -> F:
    dispatcher: Any = numba.njit(nogil=nogil, **options)(function)
    make_cache: Any = _RecoveringCache
    with suppress(RuntimeError):  # numba found no folder for the cache
        dispatcher._cache = make_cache(function)  # as `cache=True` does, with numba's own class
    return cast(F, dispatcher)


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
