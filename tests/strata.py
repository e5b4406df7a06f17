"""The strata of the tests: which marker a test has, and the guard that keeps processes out of unit tests.

A test without a marker is a unit test: it starts no process. A folder or a fixture decides the marker of all tests that
are in it or take it; any other test that starts a process is marked where it is written. `make test` runs the unit
tests and those marked `smoke`, one of each real part; `make test-all` runs everything but `slow`, `gpu`, `image` and
`cluster`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

MARKERS = ("integration", "deploy", "browser", "image", "cluster", "slow", "gpu")
FOLDERS = {
    "deploy": "deploy",
    "image": "image",
    "cluster": "cluster",
    "model": "slow",
    "e2e": "integration",
    "examples": "integration",
    "integrations": "integration",
}
FIXTURES = {"milvus_uri": "integration", "ray_cluster": "integration", "forked": "integration", "browser": "browser"}
RAY = "ray"
GROUPS = {"ray_cluster": RAY, "milvus_uri": "milvus"}  # fixture: group of the tests that share it
LONGEST = (
    "ray",
    "e2e/test_commands.py",
    "milvus",
    "e2e",
    "deploy",
    "llm",  # files that need no compiled code, while commands of the e2e tests compile nearly all that there is
    "readers",
    "core/prompts",
    "core/text",
    "storage/test",
    "execution",
    "core/entities",
    "indexing/test_updates.py",
    "application",
    "retrieval/test_engine.py",  # when the commands have compiled what it needs
    "indexing",
    "contracts",
    "cli",
    "test_leaks.py",
)
UNIT = "smoke or not "  # how the expression of `make test` begins
REST = "(integration or deploy or browser) and "  # how the expression of `make test-rest` begins
TESTS = Path(__file__).parent
HIDDEN = "write its marker, or the name of the fixture that leads to it, into the file"
STARTS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"))
QUERIES = ("g++", "lscpu", "uname", "git")  # what libraries ask of the machine, and a checker of its repository
ADVICE = "a unit test starts a process: {what}. Mark it `integration` (or deploy, browser), or do without one"

_NAMED = re.compile(rf"\b({'|'.join((*MARKERS, 'smoke', *FIXTURES))})\b")
_guard = {"on": False}


def mark(item: pytest.Item) -> None:
    """Add the markers that follow from a test's folder and fixtures."""
    fixtures = getattr(item, "fixturenames", ())
    for name in {_folder_marker(item.path), *map(FIXTURES.get, fixtures)} - {None}:
        item.add_marker(str(name))
    if not (is_unit(item) or names_a_marker(item.path)):
        raise pytest.UsageError(f"{item.path} has tests of another stratum and does not name it: {HIDDEN}")


def left_out(path: Path, expression: str) -> bool:
    """Return whether no test below a path is of the strata that the expression of a make target asks for.

    Each process imports every file that is not left out, which takes 20 s for all of them.
    """
    if expression.startswith(UNIT):
        files = [path] if path.is_file() else path.rglob("*.py")
        return _folder_marker(path) is not None and not any("mark.smoke" in file.read_text("utf-8") for file in files)
    return expression.startswith(REST) and path.is_file() and not names_a_marker(path)


def names_a_marker(path: Path) -> bool:
    """Return whether a file may have tests of other strata: its folder or its text names a marker or a fixture."""
    if path.suffix != ".py":
        return False
    return _folder_marker(path) is not None or bool(_NAMED.search(path.read_text("utf-8")))


def _folder_marker(path: Path) -> str | None:
    return FOLDERS.get((*path.relative_to(TESTS).parts, "")[0])


def group(item: pytest.Item) -> str:
    """Return the group of tests that run one after the other: those of a shared server, else those of a file."""
    own = item.get_closest_marker("xdist_group")
    shared = [GROUPS[name] for name in getattr(item, "fixturenames", ()) if name in GROUPS]
    return own.args[0] if own else min(shared, default=item.nodeid.partition("::")[0].removeprefix("tests/"))


def place(item: pytest.Item) -> int:
    """Return the place of a test's group: a group that begins when the others have ended keeps everybody waiting."""
    name = group(item)
    return next((at for at, start in enumerate(LONGEST) if name.startswith(start)), len(LONGEST))


def is_unit(item: pytest.Item) -> bool:
    """Return whether a test has no marker of another stratum."""
    return not any(item.get_closest_marker(name) for name in MARKERS)


@contextmanager
def guarded(item: pytest.Item) -> Iterator[None]:
    """Fail the test where it starts a process while the block lasts, if it is a unit test."""
    _guard["on"] = is_unit(item)
    try:
        yield
    finally:
        _guard["on"] = False


def _refuse(
    event: str, args: tuple[Any, ...], starts: frozenset[str] = STARTS, guard: dict[str, bool] = _guard
) -> None:
    """Fail a guarded test that starts a process; the arguments outlive the module's names at the interpreter's end."""
    if event in starts and guard["on"] and args[:1] not in {(name,) for name in QUERIES}:
        pytest.fail(ADVICE.format(what=f"{event} {args[1:2] or ''}"[:150]))


sys.addaudithook(_refuse)  # a hook stays for the life of the process
