"""Files of JSON Lines, as benchmarks read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file. Only a line feed ends a line: U+2028 and U+0085 may stand in a string."""
    with path.open(encoding="utf-8", newline="\n") as stream:
        yield from (json.loads(line) for line in stream if line.strip())
