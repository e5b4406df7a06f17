"""Generators and link checks of the documentation."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from pathlib import Path
from typing import Literal

import pytest
import yaml
from pydantic import BaseModel, Field

import hirag_dist
from tools.docs import configuration, links, proto_reference
from tools.docs.__main__ import PAGES
from tools.docs.markdown import table


@pytest.mark.parametrize("name", [name for name in PAGES if name.endswith(".md")])
def test_generated_pages_are_markdown_with_one_title(name: str) -> None:
    page = PAGES[name]()
    titles = [line for line in page.splitlines() if line.startswith("# ")]
    assert len(titles) == 1
    assert page.startswith("<!-- Generated")
    assert " at 0x" not in page, "an address differs from run to run"


def test_every_link_page_and_path_of_the_documentation_exists() -> None:
    assert links.faults() == []


def test_a_broken_link_anchor_and_path_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("# A\n\n## One, two\n\n[b](b.md) [x](#one-two) [y](#three) `tools/none.py`\n")
    (tmp_path / "outside.md").write_text("# O\n")
    (docs / "b.md").write_text("[a](a.md#one-two) [c](c.md) [o](../outside.md) [w](https://example.com/c.md)\n")
    monkeypatch.setattr(links, "ROOT", tmp_path)
    monkeypatch.setattr(links, "DOCS", docs)
    found = [fault for page in sorted(docs.glob("*.md")) for fault in links._file_faults(page)]
    assert [fault.rpartition(": ")[2] for fault in found] == ["tools/none.py", "#three", "c.md", "../outside.md"]


def test_messages_services_and_enumerations_are_read_from_a_proto_file(tmp_path: Path) -> None:
    proto = tmp_path / "x.proto"
    proto.write_text(
        "// Head.\npackage p.v1;\n\n// Serves.\nservice S {\n  // Asks.\n  rpc Ask(Q) returns (stream R);\n}\n"
        "// A question.\nmessage Q {\n  // Its text.\n  optional string text = 1;\n}\n"
        "// A reply.\nmessage R {\n  oneof part {\n    // A kind.\n    Kind kind = 2;\n  }\n}\n"
        "// Kinds.\nenum Kind {\n  // None.\n  KIND_UNSPECIFIED = 0;\n}\n"
    )
    page = proto_reference.page(proto)
    assert "| `Ask` | [Q](#q) | stream [R](#r) | Asks. |" in page
    assert "| `text` | optional string | 1 | Its text. |" in page
    assert "| `kind` | [Kind](#kind) | 2 | one of: A kind. |" in page
    assert "| `KIND_UNSPECIFIED` | 0 | None. |" in page


def test_a_row_of_the_configuration_has_type_bounds_default_and_meaning() -> None:
    class Section(BaseModel):
        size: int | None = Field(3, ge=1, description="of a | part")
        form: Literal["a", "b"] = "a"

    rows = [configuration._row("", name, field) for name, field in Section.model_fields.items()]
    assert rows == [("`size`", "integer or null (≥ 1)", "`3`", "of a \\| part"), ("`form`", "`a`, `b`", "`a`", "")]


def test_a_table_without_rows_is_empty() -> None:
    assert table(("a",), []) == ""


def _blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in [*sorted(links.DOCS.rglob("*.md")), links.ROOT / "README.md"]:
        if page.name == "python-api.md" and page.parent.name == "reference":
            continue  # signatures, not code
        for block in re.findall(
            rf"^( *)```{language}\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            found.append((page.name, textwrap.dedent(block[1])))
    return found


@pytest.mark.parametrize(("page", "code"), _blocks("python"))
def test_python_of_the_pages_parses_and_its_imports_exist(page: str, code: str) -> None:
    tree = compile(code, page, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "hirag":
            assert node.attr in hirag_dist.__all__


@pytest.mark.parametrize(("page", "text"), _blocks("yaml"))
def test_configurations_of_the_pages_are_valid(page: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = yaml.safe_load(text)
    if not set(values) <= set(hirag_dist.Config.model_fields):
        return  # a callers file or values of the chart
    for name in re.findall(r"\$\{(\w+)\}", text):
        monkeypatch.setenv(name, "x")
    endpoints = values.get("llm", {}).get("endpoints")
    roles = values.get("llm", {}).get("roles", {})
    assert endpoints is None or set(roles.values()) <= {*endpoints, "builtin", "builtin-embedder"}, page
    hirag_dist.Config.model_validate(values)
