"""The published verdicts give the paper's win rates, where the data are; what else they say of position and length."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.shared_data import SHARED_DATA, needs_shared

ROOT = Path(__file__).resolve().parents[2]
pytestmark = needs_shared("mix_judgements")


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    command = [sys.executable, str(ROOT / "benchmarks" / "paper_win_rates.py"), str(SHARED_DATA)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_cell_that_can_be_reproduced_is(lines: list[dict[str, Any]]) -> None:
    whole = lines[-1]
    assert (whole["cells_in_paper"], whole["reproducible"], whole["equal_where_reproducible"]) == (28, 24, 24)
    assert whole["equal_elsewhere"] == 0, "w/o HiIndex: the published file does not give the paper's numbers"
    assert (whole["counts_as_expected"], whole["counts"]) == (36, 36), "by both rules"


def test_both_rules_stand_side_by_side(lines: list[dict[str, Any]]) -> None:
    cell = next(line for line in lines if (line.get("comparison"), line.get("criterion")) == ("hi_graphrag", "overall"))
    assert (cell["paper"], cell["tables"]) == (64.1, [1, 6])
    assert (cell["published"]["wins"], cell["aligned"]["wins"], cell["aligned"]["of"]) == (166, 165, 259)


def test_position_decides_much(lines: list[dict[str, Any]]) -> None:
    """121 of 129 shown first and 44 of 130 shown second, as the data's description says."""
    bias = next(line for line in lines if line["case"] == "bias" and line["comparison"] == "hi_graphrag")
    assert bias["first_method_shown_first"] == round(121 / 129, 4)
    assert bias["first_method_shown_second"] == round(44 / 130, 4)
