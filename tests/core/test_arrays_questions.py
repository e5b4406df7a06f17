"""Nothing is compiled while a question waits: what opening an engine compiled is all that questions need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.labelled_builds import build
from tests.leaky_builds import corpus, script
from tests.toy_builds import Bench

_ASK = """
import asyncio, sys
from numba.core.dispatcher import Dispatcher
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.retrieval.search import MODES
from hirag_dist.types import Query
from tests.leaky_builds import engine_of

def compiled():
    named = [vars(module) for name, module in list(sys.modules.items()) if name.startswith("hirag_dist.")]
    found = {id(each): each for module in named for each in list(module.values()) if isinstance(each, Dispatcher)}
    return {f"{each.py_func.__name__}{types}" for each in found.values() for types in each.signatures}

async def ask(engine):
    for mode in MODES:
        for reach in (None, frozenset(), frozenset({"secret"}), frozenset({"b"})):
            for wish in ((), ("secret",), ("nothing",)):
                await engine.retrieve(Query("wordaa wordbb", mode=mode, reach=reach, labels=wish))

engine = engine_of(open_snapshot(Store(sys.argv[1]), sys.argv[2]))
before = compiled()
asyncio.run(ask(engine))
print(len(before), sorted(compiled() - before))
"""


@pytest.mark.integration
def test_questions_compile_nothing(tmp_path: Path) -> None:
    """For callers who may see everything, who hold some labels, and who wish for some."""
    snapshot = build(Bench(tmp_path), corpus(1), script)
    # a process of its own: in this one other tests have asked questions
    command = [sys.executable, "-c", _ASK, str(tmp_path / "index"), snapshot.manifest.snapshot_id]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    n_compiled, later = done.stdout.strip().split(" ", 1)
    assert int(n_compiled) > 5
    assert later == "[]"
