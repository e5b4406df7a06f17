"""Channel arguments: gRPC ignores a name that it does not know, so names are compared with the installed library's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import grpc

import hirag_dist


def set_in_the_package() -> Iterator[tuple[str, str]]:
    """Yield file and name of every channel argument: the first of a pair, or the key of a dictionary."""
    package = Path(hirag_dist.__file__).parent
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            first: list[ast.expr | None] = []
            if isinstance(node, ast.Tuple) and len(node.elts) == 2:
                first = [node.elts[0]]
            elif isinstance(node, ast.Dict):
                first = list(node.keys)
            for item in first:
                if isinstance(item, ast.Constant) and str(item.value).startswith("grpc."):
                    yield path.relative_to(package).as_posix(), str(item.value)


def test_grpc_knows_every_channel_argument() -> None:
    (library,) = [path.read_bytes() for path in Path(grpc.__file__).parent.glob("_cython/cygrpc*.so")]
    found = list(set_in_the_package())
    assert {"service/channel_options.py", "client/common.py"} <= {file for file, _ in found}
    assert [(file, name) for file, name in found if name.encode() + b"\0" not in library] == []
