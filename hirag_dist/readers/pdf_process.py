"""The process that reads PDFs (`pdf_text`): started at the first PDF, one for each process, ended with it."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from hirag_dist.readers.model import ReadOptions

_PROGRAM = Path(__file__).with_name("pdf_text.py")
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class PdfText:
    """Text of a PDF.

    Attributes:
        pages: None for a page that cannot be read.
        labels: of the pages, as the file has them; may be empty.
        boxes: for each line of each page its areas: left, top, right and bottom of each in 65,535ths of the page.
        properties: of the PDF by name, such as Title and CreationDate; those that it has.
        error: why there is no text: damaged, encrypted, pages, text, memory, cpu or crash; empty for none.
    """

    pages: tuple[str | None, ...] = ()
    labels: tuple[str, ...] = ()
    boxes: tuple[list[list[int]], ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


class PdfProcess:
    """A process that answers one request at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        atexit.register(self.close)

    def read(self, data: bytes, options: ReadOptions) -> PdfText:
        """Return the text of a PDF.

        Raises:
            OSError: the process cannot be started, or ended without a reply.
        """
        request = {
            "n_bytes": len(data),
            "max_pages": options.max_pages,
            "max_chars": options.max_document_bytes,
            "memory_bytes": options.pdf_memory_bytes,
            "cpu_s": options.pdf_cpu_s,
        }
        with self._lock:
            try:
                reply = self._ask(json.dumps(request).encode() + b"\n", data)
            except OSError:
                self._stop()
                raise
        fields = json.loads(reply)
        pages, labels, boxes = (tuple(fields.get(name, ())) for name in ("pages", "labels", "boxes"))
        return PdfText(pages, labels, boxes, fields.get("properties", {}), fields.get("error", ""))

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._stop()

    def _ask(self, head: bytes, data: bytes) -> bytes:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(head)
        process.stdin.write(data)
        process.stdin.flush()
        line = process.stdout.readline()
        reply = process.stdout.read(int(line)) if line else b""
        if not reply:
            raise OSError("the process that reads PDFs ended without a reply")
        return reply

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the process; of a process that was forked since, another one."""
        if self._process is None or self._owner != os.getpid():
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM)],  # -P: names of modules here are names of the standard library
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            self._owner = os.getpid()
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        with suppress(OSError, subprocess.TimeoutExpired):
            process.communicate(timeout=_STOP_S)
        if process.poll() is None:
            process.kill()
            process.wait()


READER = PdfProcess()
"""The process of this process."""
