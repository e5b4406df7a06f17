"""Compiled code works where it can be kept, and where it cannot."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration
PROGRAM = """
import numba.core.caching
{nowhere}
import numpy as np
from hirag_dist.core.retrieval.vector_scoring import exact_scores, _fill_scores
print(exact_scores(np.eye(3, dtype=np.float32), np.array([2, 0]), np.array([1, 2, 3], np.float32)).tolist())
print(type(_fill_scores._cache).__name__)
"""


def run(nowhere: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(nowhere=nowhere)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_without_a_folder_to_keep_it_in_every_process_compiles() -> None:
    scores, cache, _ = run("numba.core.caching.CacheImpl._locator_classes = []")
    assert (scores, cache) == ("[3.0, 1.0]", "NullCache")


def test_with_one_it_is_kept() -> None:
    scores, cache, _ = run("")
    assert (scores, cache) == ("[3.0, 1.0]", "FunctionCache")
