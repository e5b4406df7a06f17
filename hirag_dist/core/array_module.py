"""Functions for code that runs on NumPy or on CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

# Decorates functions of finite rows: on some processors with AVX-512, OpenBLAS raises floating-point flags in products
# with a few float32 vectors, and NumPy would warn of an invalid value.
finite_products = np.errstate(invalid="ignore", over="ignore")


def to_numpy(xp: Any, values: Any) -> Any:
    """Return values of the array module `xp` as numpy's; numpy's own as they are."""
    return values if xp is np else xp.asnumpy(values)
