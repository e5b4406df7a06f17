"""The public API: its names, its lazy imports, and what it does not import."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import hirag_dist

ROOT = Path(__file__).parents[2]


def test_every_public_name_exists_and_is_documented() -> None:
    assert list(hirag_dist.__all__) == sorted(hirag_dist.__all__)
    for name in hirag_dist.__all__:
        value = getattr(hirag_dist, name)
        if name != "__version__":
            assert inspect.getdoc(value), f"{name} has no docstring"


def test_the_names_for_type_checkers_are_those_imported_lazily() -> None:
    tree = ast.parse((ROOT / "hirag_dist" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        (node.module, alias.name) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    lazy = {(module, name) for module, names in hirag_dist._MODULES.items() for name in names}
    assert typed == lazy
    assert {name for _, name in lazy} | {"__version__"} == set(hirag_dist.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'build_indexes'"):
        _ = hirag_dist.build_indexes  # type: ignore[attr-defined]


@pytest.mark.integration
def test_importing_the_package_imports_no_library() -> None:
    code = "import sys, hirag_dist; print([m for m in ('numpy', 'ray', 'pydantic', 'grpc') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
