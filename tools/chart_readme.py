"""README of the chart: requirements, and a table of its values from the comments of values.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_HEAD = """# hirag-dist

Builds hierarchical knowledge indexes on Ray and serves them over gRPC (HiRAG, arXiv 2503.10150).

Required values: `image.repository`, `index.uri`, and a way to authenticate callers (`callers.existingSecret` or
`tls.clientCa.existingSecret`), unless `query.enabled` is false; for builds `build.inputs`. A build on Ray needs
KubeRay's operator, 1.6 or newer, and with `networkPolicy.enabled` its namespace in `build.ray.operatorNamespace`.
Kubernetes must be 1.29 or newer.

Installation and security are described in `docs/operations/kubernetes.md` of the project, alerts and operation in
`docs/operations/alerts.md`. `helm show values` prints the table below as YAML; `values.schema.json` holds every key of
`config`.

## Values

| key | default | description |
|---|---|---|
"""


def readme(values: Path) -> str:
    """Return the README of the chart with these values."""
    text = values.read_text(encoding="utf-8")
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    rows = _rows(root, text.splitlines(), "")
    return _HEAD + "".join(f"| `{key}` | {default} | {said} |\n" for key, default, said in rows)


def _rows(node: yaml.MappingNode, lines: list[str], prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yield (key, default, comment) for each value, mappings of one line and lists as a whole."""
    for name, value in node.value:
        key = f"{prefix}{name.value}"
        above = " ".join(reversed(list(_above(lines, name.start_mark.line))))
        beside = _beside(lines, name, value)
        opens = isinstance(value, yaml.MappingNode) and value.value and not value.flow_style
        said = " ".join(filter(None, (above, beside)))
        if opens:
            if said:
                yield f"{key}", "", _cell(said)
            yield from _rows(value, lines, f"{key}.")
        else:
            yield key, f"`{_cell(_written(value))}`", _cell(said)


def _above(lines: list[str], line: int) -> Iterator[str]:
    """Yield the lines of the comment right above, from the last one; those of examples are left out."""
    indent = len(lines[line]) - len(lines[line].lstrip())
    for number in range(line - 1, -1, -1):
        text = lines[number]
        if not text.lstrip().startswith("#") or len(text) - len(text.lstrip()) != indent:
            return
        if not text.lstrip().startswith("#  "):
            yield text.strip().removeprefix("#").strip()


def _beside(lines: list[str], name: yaml.Node, value: yaml.Node) -> str:
    """Return the comment at the end of a value's line."""
    block = isinstance(value, yaml.MappingNode | yaml.SequenceNode) and not value.flow_style
    mark = name.end_mark if block else value.end_mark
    _, found, said = lines[mark.line][mark.column :].partition(" # ") if mark.line < len(lines) else ("", "", "")
    return said.strip() if found else ""


def _written(node: yaml.Node) -> str:
    found: Any = yaml.SafeLoader("").construct_object(node, deep=True)
    return json.dumps(found, ensure_ascii=False)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
