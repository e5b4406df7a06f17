"""Text of the pages of PDFs, in a process with limits. A program of its own: it imports nothing of this package.

PDFium may take any amount of memory and time for a small file, and a damaged file may crash it. `pdf_process` starts
this program once; each request is handled by a fork, so that a PDF that passes a limit costs nothing but itself.

A request on stdin is a line of JSON (`n_bytes`, `max_pages`, `max_chars`, `memory_bytes`, `cpu_s`) and the PDF. A reply
on stdout is a line with its length and JSON: `pages`, a list with null for a page that cannot be read, and `title`; or
`error`: damaged, encrypted, pages, text, memory, cpu or crash.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pypdfium2 as pdfium

_PASSWORD = 4


def main() -> None:
    """Answer requests until stdin ends."""
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["n_bytes"])
        if len(data) < request["n_bytes"]:
            return
        reply = _in_fork(request, data)
        replies.write(b"%d\n" % len(reply))
        replies.write(reply)
        replies.flush()


def _in_fork(request: Mapping[str, Any], data: bytes) -> bytes:
    """Return the reply that a fork writes to a temporary file; where it dies, the cause."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            os._exit(_answer(request, data, file))
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            file.seek(0)
            return file.read()
    by_clock = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    by_memory = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGABRT, signal.SIGTRAP, signal.SIGILL)
    return json.dumps({"error": "cpu" if by_clock else "memory" if by_memory else "crash"}).encode()


def _answer(request: Mapping[str, Any], data: bytes, file: BinaryIO) -> int:
    """Write the reply to a request; the exit code of the fork."""
    try:
        _limit(resource.RLIMIT_CORE, 0)
        if mapped := _mapped_bytes():
            _limit(resource.RLIMIT_AS, mapped + request["memory_bytes"])
        _limit(resource.RLIMIT_CPU, request["cpu_s"])
        reply = _read(data, request["max_pages"], request["max_chars"])
    except MemoryError:
        reply = {"error": "memory"}
    except BaseException:
        return 1
    file.write(json.dumps(reply).encode())
    file.flush()
    return 0


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _mapped_bytes() -> int:
    """Return the size of the address space; 0 where the system does not say, as on macOS, which has no such limit."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _read(data: bytes, max_pages: int, max_chars: int) -> dict[str, Any]:
    try:
        pdf = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        return {"error": "encrypted" if error.err_code == _PASSWORD else "damaged"}
    if len(pdf) > max_pages:
        return {"error": "pages"}
    pages: list[str | None] = []
    left = max_chars
    for index in range(len(pdf)):
        try:
            page = pdf[index]
            text_page = page.get_textpage()
            pages.append(text_page.get_text_bounded(errors="replace"))
            text_page.close()
            page.close()
        except pdfium.PdfiumError:
            pages.append(None)
        left -= len(pages[-1] or "")
        if left < 0:
            return {"error": "text"}
    return {"pages": pages, "title": pdf.get_metadata_value("Title")}


if __name__ == "__main__":
    main()
