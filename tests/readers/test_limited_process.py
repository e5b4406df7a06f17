"""A program that reads within limits, in a process of its own."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from hirag_dist.readers.limited_process import LimitedProcess, TemporaryFolderFull, raise_if_full
from hirag_dist.readers.model import FileRefused, ReadOptions

PROGRAM = """
import resource
from hirag_dist.readers.pdf_text import answer_requests

def read(request, data):
    if data == b"loop":
        while True:
            pass
    if data == b"grow":
        return {"size": len([bytes(1 << 20) for _ in range(1 << 12)])}
    if data == b"fail":
        raise ValueError
    if data == b"full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))  # fewer bytes than the reply has
    return {"size": len(data)}

answer_requests(read)
"""


@pytest.mark.integration
def test_a_file_that_passes_a_limit_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    process = LimitedProcess(path, "files")
    options = ReadOptions(memory_bytes=1 << 28, cpu_s=1)
    try:
        for data, reason in ((b"loop", "more than 1 s"), (b"grow", "bytes of memory"), (b"fail", "is damaged")):
            with pytest.raises(FileRefused, match=reason):
                process.ask({}, data, options)
        with pytest.raises(TemporaryFolderFull, match="is full: let TMPDIR name a folder with room"):
            process.ask({}, b"full", options)
        assert process.ask({}, b"words", options) == {"size": 5}
    finally:
        process.close()


@pytest.mark.integration
def test_a_program_that_ends_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("")
    with pytest.raises(OSError, match=r"Broken pipe|ended without a reply"):
        LimitedProcess(path, "files").ask({}, b"words", ReadOptions())


def test_a_full_disk_is_no_fault_of_the_file() -> None:
    raise_if_full(OSError(errno.EIO, "broken"))
    for error in (OSError(errno.ENOSPC, "No space left"), TemporaryFolderFull("full")):
        with pytest.raises(TemporaryFolderFull, match="full"):
            raise_if_full(error)
