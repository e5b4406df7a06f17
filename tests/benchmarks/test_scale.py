"""The plan in docs/scale.md: its tables are what their unit gives, multiplied."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from hirag_dist.execution.splitting import runs_together

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")

# One unit: the Mix corpus. A test below holds them against the page.
TOKENS, CHUNKS, CALLS, TOKENS_A_CALL = 0.6116e6, 576, 1048, 4940
ENTITY_MENTIONS, RELATION_MENTIONS, ENTITIES, RELATIONS = 12_237, 17_110, 9677, 29_694
STORED_BYTES, CPU_S = 66e6, 21.0
BILLION, HUNDRED_MILLION = 1e9 / TOKENS, 1e8 / ENTITIES  # units

SUFFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "MB": 1e6, "GB": 1e9, "h": 3600.0, "min": 60.0, "": 1.0}


def numbers(cell: str) -> list[tuple[float, float]]:
    """Return the quantities of a cell with half a unit of the last digit shown; hours and minutes are one."""
    found: list[tuple[float, float]] = []
    joined = re.sub(r"(\d+) h (\d+) min", lambda match: f"{int(match[1]) * 60 + int(match[2])} min", cell)
    for digits, suffix in re.findall(r"(\d[\d,]*(?:\.\d+)?) ?(MB|GB|M|G|h|min)?(?![A-Za-z])", joined):
        plain = digits.replace(",", "")
        shown = plain.rstrip("0") if "." not in plain else plain
        last = 10.0 ** -len(shown.partition(".")[2]) if "." in shown else 10.0 ** (len(plain) - len(shown))
        found.append((float(plain) * SUFFIXES[suffix], last * SUFFIXES[suffix] / 2))
    return found


def cells(label: str) -> list[list[tuple[float, float]]]:
    """Return the quantities of each cell of the row that begins so."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {label}"))
    return [numbers(cell) for cell in row.strip("| ").split(" | ")[1:]]


def merging_tasks(units: float) -> list[float]:
    return [units * mentions / 100_000 for mentions in (ENTITY_MENTIONS, RELATION_MENTIONS)]


def small_reads(units: float) -> float:
    """Each task reads its piece of each file of the first pass."""
    return sum(math.ceil(n / runs_together(math.ceil(n))) * n for n in merging_tasks(units))


ROWS = {
    "chunks;": lambda units: [units * CHUNKS, units * CHUNKS / 16],
    "calls;": lambda units: [units * CALLS, units * CALLS * TOKENS_A_CALL],
    "mentions,": lambda units: [units * ENTITY_MENTIONS, units * RELATION_MENTIONS],
    "tasks that merge": merging_tasks,
    "small reads": lambda units: [small_reads(units)],
    "entities, relations": lambda units: [units * ENTITIES, units * RELATIONS],
    "vectors": lambda units: [units * ENTITIES * dim * 4 for dim in (384, 1024)],
    "index and work": lambda units: [units * STORED_BYTES],
    "CPU": lambda units: [units * CPU_S],
    "what a worker holds": lambda units: [units * CALLS * 2.2],
}
TIMES = {
    "10,000, 10 M": lambda units: max(units * CALLS / 10_000, units * CALLS * TOKENS_A_CALL / 10e6) * 60,
    "100,000, 100 M": lambda units: max(units * CALLS / 100_000, units * CALLS * TOKENS_A_CALL / 100e6) * 60,
    "60,000, no limit": lambda units: units * CALLS / 60_000 * 60,
}


def is_what(shown: tuple[float, float], expected: float) -> bool:
    value, rounding = shown
    return abs(value - expected) <= max(rounding, 0.01 * expected)


@pytest.mark.parametrize("label", ROWS)
def test_what_is_multiplied_is_its_unit_times_the_units(label: str) -> None:
    for shown, units in zip(cells(label), (BILLION, HUNDRED_MILLION), strict=True):
        expected = ROWS[label](units)
        assert len(shown) == len(expected), shown
        assert all(is_what(each, value) for each, value in zip(shown, expected, strict=True)), (shown, expected)


@pytest.mark.parametrize("label", TIMES)
def test_times_are_what_the_tighter_limit_makes_them(label: str) -> None:
    for shown, units in zip(cells(label)[:2], (BILLION, HUNDRED_MILLION), strict=True):
        assert is_what(shown[0], TIMES[label](units)), (shown, TIMES[label](units))


def test_the_unit_is_that_of_the_page() -> None:
    told = " ".join(PAGE[PAGE.index("One unit is") :].split("\n\n")[0].split())
    for value in (CHUNKS, CALLS, TOKENS_A_CALL, ENTITY_MENTIONS, RELATION_MENTIONS, ENTITIES, RELATIONS):
        assert re.search(rf"\b{value:,}\b", told), value
    for value in (f"{TOKENS / 1e6:.2f} M tokens", f"{STORED_BYTES / 1e6:.0f} MB", f"{CPU_S:.0f} s of CPU"):
        assert value in told
    assert f"{BILLION:,.0f} units" in told
    assert f"are {HUNDRED_MILLION:,.0f}" in told


def test_quantities_are_read_with_their_units_and_digits() -> None:
    assert numbers("942,000; 58,900") == [(942_000.0, 500.0), (58_900.0, 50.0)]
    assert numbers("24 GB; 1.5 M") == [(24e9, 0.5e9), (1.5e6, 0.05e6)]
    assert numbers("14 h 10 min") == [(51_000.0, 300.0)]
    assert numbers("9.5 h") == [(34_200.0, 180.0)]
