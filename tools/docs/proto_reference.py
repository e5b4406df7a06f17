"""Reference of the gRPC protocol, read from the comments of the .proto file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tools.docs.markdown import NOTICE, cell, table, wrapped

PROTO = Path(__file__).parents[2] / "proto" / "hirag" / "query" / "v1" / "query.proto"
_BLOCK = re.compile(r"^(service|message|enum|oneof) (\w+) \{")
_RPC = re.compile(r"^rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")
_FIELD = re.compile(r"^((?:optional |repeated )?(?:map<[^>]+>|[\w.]+)) (\w+) = (\d+)")
_VALUE = re.compile(r"^([A-Z]\w*) = (\d+)")


@dataclass
class _Block:
    kind: str
    name: str
    comment: str
    rows: list[tuple[str, ...]] = field(default_factory=list)


def page(proto: Path = PROTO) -> str:
    """Return the page `reference/proto.md`."""
    package, head, blocks = _parse(proto.read_text(encoding="utf-8"))
    parts = [
        NOTICE,
        f"# gRPC protocol\n\nPackage `{package}`, defined in `proto/hirag/query/v1/query.proto`.\n\n",
        f"{wrapped(head)}\n\n",
    ]
    parts.append("Examples of calls: [Call the service](../how-to/call-the-service.md).\n\n")
    known = {block.name for block in blocks}
    for title, kind in (("Services", "service"), ("Messages", "message"), ("Enumerations", "enum")):
        parts.append(f"## {title}\n\n")
        for block in blocks:
            if block.kind == kind:
                parts.append(_render(block, known))
    return "".join(parts).rstrip() + "\n"


def _render(block: _Block, known: set[str]) -> str:
    heads = {
        "service": ("method", "request", "response", "meaning"),
        "message": ("field", "type", "number", "meaning"),
        "enum": ("value", "number", "meaning"),
    }
    rows = [
        tuple(_linked(text, known) if index in (1, 2) else text for index, text in enumerate(row)) for row in block.rows
    ]
    return f"### {block.name}\n\n{wrapped(block.comment)}\n\n{table(heads[block.kind], rows)}\n"


def _linked(text: str, known: set[str]) -> str:
    return re.sub(r"\b[A-Z]\w*\b", lambda match: _link(match[0]) if match[0] in known else match[0], text)


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _parse(text: str) -> tuple[str, str, list[_Block]]:
    """Return the package, the comment above it, and the blocks in order; fields of a oneof belong to its message."""
    package = head = ""
    blocks: list[_Block] = []
    stack: list[str] = []
    comment: list[str] = []
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("//"):
            comment.append(line[2:].strip())
            continue
        said, comment = cell(" ".join(comment)), [] if line else comment if not raw else []
        if found := re.match(r"^package ([\w.]+);", line):
            package, head = found[1], said
        elif found := _BLOCK.match(line):
            stack.append(found[1])
            if found[1] != "oneof":
                blocks.append(_Block(found[1], found[2], said))
        elif line == "}" and stack:
            stack.pop()
        elif found := _RPC.match(line):
            request, response = ((found[2] or "") + found[3], (found[4] or "") + found[5])
            blocks[-1].rows.append((f"`{found[1]}`", request, response, said))
        elif stack and stack[-1] == "enum" and (found := _VALUE.match(line)):
            blocks[-1].rows.append((f"`{found[1]}`", found[2], said))
        elif stack and (found := _FIELD.match(line)):
            note = "one of: " if stack[-1] == "oneof" else ""
            blocks[-1].rows.append((f"`{found[2]}`", found[1], found[3], note + said))
    return package, head, blocks
