"""INPUT arguments → the table of files that a build reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from hirag_dist.reading import find_inputs
from hirag_dist.stages.read import SOURCES


def source_table(inputs: Sequence[str]) -> pa.Table:
    """Return SOURCES for INPUT arguments, each file once, sorted.

    A local file is named by its path below the INPUT it came from, so that an index does not depend on where its
    corpus lies; what is on an object store keeps its URI.

    Raises:
        InputError: an INPUT is not there or holds no file.
    """
    rows: dict[str, dict[str, Any]] = {}
    for argument in inputs:
        for source in find_inputs([argument]):
            filesystem, path = fs.FileSystem.from_uri(source.uri)
            info = filesystem.get_file_info(path)
            local = isinstance(filesystem, fs.LocalFileSystem)
            rows.setdefault(
                source.uri,
                {
                    "uri": source.uri,
                    "shown": _below(argument, path) if local else source.display,
                    "size_bytes": source.size_bytes,
                    "format": source.format,
                    "compression": source.compression,
                    "modified": str(info.mtime_ns or ""),
                },
            )
    return pa.Table.from_pylist([rows[uri] for uri in sorted(rows)], SOURCES)


def _below(argument: str, path: str) -> str:
    """Return a local file's path below an INPUT: a folder, a glob's fixed part, or the file itself."""
    fixed = Path(argument.removeprefix("file://"))
    while any(mark in str(fixed) for mark in "*?["):
        fixed = fixed.parent
    root = fixed.resolve()
    file = Path(path).resolve()
    return file.name if file == root or root not in file.parents else file.relative_to(root).as_posix()
