"""Compiled code works where it can be kept, and where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
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
    assert (scores, cache) == ("[3.0, 1.0]", "_RecoveringCache")


VERSION = """
from typing import NamedTuple
import numpy as np
from hirag_dist.core.compilation import on_first_compilation
from hirag_dist.core.numba_jit import compiled
on_first_compilation(lambda: print("compiling"))
class {name}(NamedTuple):
    values: np.ndarray
@compiled
def total(rows):
    return rows.values.sum()
print(total({name}(np.arange(4))), sum(total.stats.cache_hits.values()))
"""


def run_version(folder: Path, name: str) -> str:
    (folder / "upgraded.py").write_text(VERSION.format(name=name), encoding="utf-8")
    command = [sys.executable, "-c", "import upgraded"]
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "NUMBA_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().replace("\n", " ")


def test_a_cache_that_names_a_class_which_is_gone_is_written_again(tmp_path: Path) -> None:
    assert [run_version(tmp_path, "Rows") for _ in range(2)] == ["compiling 6 0", "6 1"]
    assert [run_version(tmp_path, "Values") for _ in range(2)] == ["compiling 6 0", "6 1"]


def test_a_damaged_cache_is_written_again(tmp_path: Path) -> None:
    run_version(tmp_path, "Rows")
    for pattern in ("*.nbi", "*.nbc"):
        for file in (tmp_path / "cache").rglob(pattern):
            file.write_bytes(file.read_bytes()[:-20])
        assert [run_version(tmp_path, "Rows") for _ in range(2)] == ["compiling 6 0", "6 1"]
