"""Output and exit code of `inspect --drift`."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from hirag_dist.cli._command_line import run
from hirag_dist.storage.snapshot.reader import Snapshot
from tests.altered_snapshots import altered
from tests.toy_builds import LONG, Bench


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Bench(tmp_path_factory.mktemp("toy")).build([LONG])


@pytest.fixture
def index(fresh: Snapshot) -> str:
    return str(Path(fresh.store.uri.removeprefix("file://")))


def test_a_fresh_index_holds(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "--drift", "--index", index, "--check"]) == 0
    said = capsys.readouterr().out
    assert "compactness ratio" in said
    assert "fails" not in said
    assert "level 0" in said


def test_a_failing_gate_is_code_6_with_check_only(
    index: str, fresh: Snapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters = fresh.table("clusters").filter(pc.greater(fresh.table("clusters")["layer"], 0))
    chosen = [
        "inspect",
        "--drift",
        "--index",
        index,
        "--snapshot",
        altered(fresh, {"clusters": clusters}).manifest.snapshot_id,
    ]
    assert run(chosen) == 0
    said = capsys.readouterr().out
    assert "fails" in said
    assert "index INPUT --rebuild" in said
    assert run([*chosen, "--check"]) == 6
