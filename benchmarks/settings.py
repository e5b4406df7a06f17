"""Settings and inputs that benchmarks share. Figures must not depend on whether a better embedder is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_KIND = "llm.endpoints.builtin-embedder.kind"

HASHING = {_KIND: "hashing"}
HASHING_OPTION = ("--set", f"{_KIND}=hashing")


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file. Only a line feed ends a line: U+2028 and U+0085 may stand in a string."""
    with path.open(encoding="utf-8", newline="\n") as stream:
        yield from (json.loads(line) for line in stream if line.strip())
