"""The tests mirror the package: `tests/a/test_b.py` tests `hirag_dist/a/b.py` (or `_b.py`, or the package `b`).

A module with several test files has `test_b_PART.py` too. Files that test no single module are directly in `tests/`, in
a folder of `ACROSS`, or named in `SEVERAL`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "hirag_dist"
ACROSS = ("contracts", "e2e", "deploy", "image", "cluster", "examples", "benchmarks", "tools")
SEVERAL = (
    "api/*",  # names and calls of the whole public interface
    "client/*",  # the synchronous and the asynchronous client together
    "composition/test_first_stored.py",  # a task, the ledger and an executor
    "config/test_template.py",  # the configuration file that init writes
    "core/entities/resolution/test_any_text.py",
    "core/retrieval/test_equations.py",  # equations 12 to 16, one after the other
    "execution/ray/test_equal_requests.py",  # workers and their key locks
    "indexing/update/test_equal_to_all.py",  # every step of an update
    "indexing/update/test_extraction_costs.py",  # recorded by stages, used by the budget
    "interop/importers/test_recorded.py",
    "interop/importers/test_round_trip.py",
    "llm/endpoints/test_embedders.py",
    "llm/endpoints/test_openai.py",
    "llm/endpoints/test_providers.py",  # the guide to providers
    "llm/rule_based/*",
    "llm/test_pool.py",
    "readers/test_limits.py",  # of every format
    "readers/test_links.py",  # listing and reading
    "readers/test_labels.py",  # the next four: every format
    "readers/test_object_store.py",
    "readers/test_sample_documents.py",
    "readers/test_source_ids.py",
    "retrieval/lookup/test_labelled.py",  # all look-ups of one index
    "retrieval/test_answer_limits.py",
    "service/*",  # a service as its callers see it
    "testing/simulator/test_simulator_parts.py",
)


def modules_of(folder: Path) -> set[str]:
    """Return the modules and packages in a folder of the package, without leading underscores."""
    found = folder.iterdir() if folder.is_dir() else ()
    return {path.stem.lstrip("_") for path in found if path.suffix == ".py" or (path / "__init__.py").exists()}


def files_without_module(tests: Path, package: Path) -> Iterator[str]:
    """Yield the test files that map to no module."""
    for path in sorted(tests.rglob("test_*.py")):
        file = path.relative_to(tests)
        name = file.stem.removeprefix("test_")
        if len(file.parts) == 1 or file.parts[0] in ACROSS:
            continue
        modules = modules_of(package / file.parent)
        mapped = any(name == module or name.startswith(f"{module}_") for module in modules)
        if not mapped and not any(fnmatch(str(file), pattern) for pattern in SEVERAL):
            yield str(file)


def modules_without_file(tests: Path, package: Path) -> Iterator[str]:
    """Yield the modules that no test file is named after."""
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package)
        if path.stem not in ("__init__", "__main__") and "_pb" not in module.parts:
            name = path.stem.lstrip("_")
            if not any((tests / module.parent).glob(f"test_{name}*.py")):
                yield str(module)


def test_every_test_file_maps_to_a_module() -> None:
    assert list(files_without_module(TESTS, PACKAGE)) == []


def test_a_file_in_the_wrong_place_is_found(tmp_path: Path) -> None:
    for file in ("package/a/b.py", "package/a/_c.py", "tests/a/test_b.py", "tests/a/test_c_part.py", "tests/test_b.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert list(files_without_module(tmp_path / "tests", tmp_path / "package")) == []
    (tmp_path / "tests/a/test_d.py").touch()
    assert list(files_without_module(tmp_path / "tests", tmp_path / "package")) == ["a/test_d.py"]


if __name__ == "__main__":  # a report: not every module needs a file of its own
    print("\n".join(modules_without_file(TESTS, PACKAGE)))
