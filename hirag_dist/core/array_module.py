"""Functions that differ between NumPy and CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def to_numpy(xp: Any, values: Any) -> Any:
    """Return values of the array module `xp` as numpy's; numpy's own as they are."""
    return values if xp is np else xp.asnumpy(values)
