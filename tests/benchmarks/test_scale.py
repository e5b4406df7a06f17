"""The plan in docs/scale.md and the sizes in docs/operations.md: their tables are what the unit gives, multiplied."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from hirag_dist.execution.partitioning import runs_together

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "scale.md").read_text(encoding="utf-8")
MEASURED = (DOCS / "measurements.md").read_text(encoding="utf-8")
_OPERATIONS = (DOCS / "operations.md").read_text(encoding="utf-8")
SIZING = _OPERATIONS[_OPERATIONS.index("## Sizing") : _OPERATIONS.index("## Rate limits")]

# One unit: the Mix corpus. A test below holds them against the page.
TOKENS, CHUNKS, CALLS, TOKENS_A_CALL = 0.6116e6, 576, 1048, 4940
ENTITY_MENTIONS, RELATION_MENTIONS, ENTITIES, RELATIONS = 12_237, 17_110, 9677, 29_694
STORED_BYTES, SNAPSHOT_BYTES, CPU_S, REPLIES = 66e6, 39.7e6, 21.0, 0.47
# Of a million entities: what a pod maps, and what each process of it has for itself. Of Leiden: for each relation.
MAPPED_BYTES, PRIVATE_BYTES, LEIDEN_BYTES = 3600e6, 270e6, 4 * 2**30 / 5e6
PUBLISHING_BYTES = 1249e6 / 1e6  # for each entity, of a million with five million relations
LAYER_0 = 8505  # entities of the unit
TABLES_BYTES, VECTORS_BYTES, GRAPH_BYTES = 18.8e6, 15.7e6, 0.8e6  # of the unit's snapshot, uncompressed
BILLION, HUNDRED_MILLION = 1e9 / TOKENS, 1e8 / ENTITIES  # units

SUFFIXES = {"M": 1e6, "G": 1e9, "MB": 1e6, "GB": 1e9, "Gi": 2.0**30, "h": 3600.0, "min": 60.0, "s": 1.0, "": 1.0}


def numbers(cell: str) -> list[tuple[float, float]]:
    """Return the quantities of a cell with half a unit of the last digit shown; hours and minutes are one."""
    found: list[tuple[float, float]] = []
    joined = re.sub(r"(\d+) h (\d+) min", lambda match: f"{int(match[1]) * 60 + int(match[2])} min", cell)
    for digits, suffix in re.findall(r"(\d[\d,]*(?:\.\d+)?) ?(MB|GB|Gi|M|G|h|min|s)?(?![A-Za-z])", joined):
        plain = digits.replace(",", "")
        shown = plain.rstrip("0") if "." not in plain else plain
        last = 10.0 ** -len(shown.partition(".")[2]) if "." in shown else 10.0 ** (len(plain) - len(shown))
        found.append((float(plain) * SUFFIXES[suffix], last * SUFFIXES[suffix] / 2))
    return found


def cells(label: str, page: str = PAGE) -> list[list[tuple[float, float]]]:
    """Return the quantities of each cell of the row that begins so."""
    (row,) = (line for line in page.splitlines() if line.startswith(f"| {label}"))
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
SIZES = [1e6 / TOKENS, 1e7 / TOKENS, 1e8 / TOKENS, BILLION]  # units of the columns


def dollars(units: float, prompts: float, replies: float) -> list[float]:
    """Return what the calls cost at these prices of a million tokens."""
    return [units * CALLS * TOKENS_A_CALL * ((1 - REPLIES) * prompts + REPLIES * replies) / 1e6]


def seconds(units: float, tokens_a_minute: float) -> list[float]:
    return [units * CALLS * TOKENS_A_CALL / tokens_a_minute * 60]


def mapped_bytes(units: float) -> float:
    return units * ENTITIES * MAPPED_BYTES / 1e6


SIZED = {
    "chunks |": lambda units: [units * CHUNKS],
    "calls to the model": lambda units: [units * CALLS],
    "tokens of these calls": lambda units: [units * CALLS * TOKENS_A_CALL * share for share in (1 - REPLIES, REPLIES)],
    "entities, at most": lambda units: [units * ENTITIES, units * RELATIONS],
    "dollars, at 0.15": lambda units: dollars(units, 0.15, 0.60),
    "dollars, at 2.50": lambda units: dollars(units, 2.50, 10.0),
    "time under 1 M": lambda units: seconds(units, 1e6),
    "time under 10 M": lambda units: seconds(units, 10e6),
    "time under 100 M": lambda units: seconds(units, 100e6),
    "CPU of the whole build": lambda units: [units * CPU_S],
    "bucket:": lambda units: [units * STORED_BYTES, units * (STORED_BYTES + SNAPSHOT_BYTES)],
}
# What a value of the chart must be at the least, and the smallest that is worth setting.
NEEDED = {
    # Beside Leiden a pod has its shared memory and the other worker.
    "memory limit of a CPU worker": (lambda units: units * RELATIONS * LEIDEN_BYTES + 2**30 + 0.7e9, 8 * 2**30),
    # Publishing, Ray's own, and the shared memory.
    "memory limit of the head": (lambda units: units * ENTITIES * PUBLISHING_BYTES + 1e9 + 2**30, 4 * 2**30),
    "memory limit of a query pod": (lambda units: mapped_bytes(units) + 2 * PRIVATE_BYTES, 4 * 2**30),
    "`query.cache.size`": (lambda units: 2 * mapped_bytes(units) / 0.95, 10 * 2**30),
    # Publishing sorts there: its vectors, the largest part, once more.
    "`build.scratch.size`, for": (lambda units: units * (TABLES_BYTES + 2 * VECTORS_BYTES + GRAPH_BYTES), 10 * 2**30),
    "`query.startupSeconds`": (lambda units: 2 * mapped_bytes(units) / 100e6, 600),
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


@pytest.mark.parametrize("label", SIZED)
def test_sizes_are_the_unit_times_the_units(label: str) -> None:
    for shown, units in zip(cells(label, SIZING), SIZES, strict=True):
        expected = SIZED[label](units)
        assert len(shown) == len(expected), shown
        assert all(is_what(each, value) for each, value in zip(shown, expected, strict=True)), (shown, expected)


@pytest.mark.parametrize("label", NEEDED)
def test_values_of_the_chart_are_enough_and_not_far_more(label: str) -> None:
    needed, least = NEEDED[label]
    for ((value, _), *_), units in zip(cells(label, SIZING), SIZES, strict=True):
        assert needed(units) <= value <= max(least, 2 * needed(units)), (value, needed(units))


def test_every_row_of_the_sizes_is_recomputed() -> None:
    table = SIZING[SIZING.index("| corpus tokens") :].split("\n\n")[0].splitlines()
    for row in table[2:]:
        told = [label for label in (*SIZED, *NEEDED, "`config.vectors.backend`") if row.startswith(f"| {label}")]
        assert len(told) == 1, row


def test_the_text_about_sizes_multiplies_too() -> None:
    told = " ".join(SIZING.split())
    cpu_s = CPU_S / (CALLS * TOKENS_A_CALL / 1e6)  # of a million tokens of calls
    for found, expected in {
        r"numbers here\. With 1,024 a billion tokens add (\d+) GB": BILLION * ENTITIES * (1024 - 384) * 4 / 1e9,
        r"and (\d+) GB × to its cache": 2 * BILLION * ENTITIES * (1024 - 384) * 4 / 1e9,
        r"A build takes ([\d.]+) s of CPU for a million tokens of calls": cpu_s,
        r"So (\d+) pods of 2 CPUs": math.ceil(10 * cpu_s / 60 * 10 / 2),
        r"and (\d+) pods for 100 M": math.ceil(100 * cpu_s / 60 * 10 / 2),
        r"(\d+) M tokens ×\), communities": (7 * 2**30 - 0.7e9) / LEIDEN_BYTES / RELATIONS * TOKENS / 1e6,
    }.items():
        (shown,) = re.findall(found, told)
        assert float(shown) == pytest.approx(expected, rel=0.03), found


def test_stages_without_calls_take_what_was_measured_times_the_units() -> None:
    for label, expected in {
        "all that can be split": BILLION * CPU_S / 24,
        "clustering of layer 0": BILLION * LAYER_0 / 1e6 * 114,
        "communities, one": BILLION * RELATIONS / 5e6 * 22,
        "publishing, one process": BILLION * ENTITIES / 1e6 * 40,
        "the same: counting": BILLION * (ENTITIES * 30e-6 + RELATIONS * 12e-6),
    }.items():
        assert is_what(cells(label)[0][0], expected), (label, expected)


def test_what_is_multiplied_was_measured() -> None:
    told = " ".join(MEASURED.split())
    for words in (
        f"{SNAPSHOT_BYTES / 1e6} MB: 6.6 tables ({TABLES_BYTES / 1e6} uncompressed), {VECTORS_BYTES / 1e6} vectors",
        f"{GRAPH_BYTES / 1e6} graph",
        "236 to 270 / 3,600",
        f"{LAYER_0:,}",
        "2.72 M are prompts and 2.45 M replies",
    ):
        assert words in told, words
    assert pytest.approx(REPLIES, abs=0.005) == 2.45 / (2.72 + 2.45)


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
    assert numbers("8Gi, default") == [(8 * 2.0**30, 2.0**29)]
    assert numbers("51 s") == [(51.0, 0.5)]
