"""A file below tmp_path, read as a user's input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hirag_dist.readers import Document, ReadOptions, Unreadable, find_inputs, read_source


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., list[Document | Unreadable]]:
    """A function (name, content, **options) → what the file yields."""

    def read_file(name: str, content: bytes | str, **options: object) -> list[Document | Unreadable]:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        (source,) = find_inputs([str(path)])
        return list(read_source(source, ReadOptions(**options)))  # type: ignore[arg-type]

    return read_file
