"""A process that reads files of one kind within limits: started at the first file, one for each process, ended with it.

The program forks for each file (`pdf_text.answer_requests`), so that a file that passes a limit, or crashes a library,
costs only itself.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from hirag_dist.errors import StoreError
from hirag_dist.readers.model import FileRefused, ReadOptions

_STOP_S = 5.0
_FULL = "the temporary folder {} is full: let TMPDIR name a folder with room, and run again, finished work is kept"


class TemporaryFolderFull(StoreError):
    """There is no room for what a reader unpacks: a fault of this machine, not of the file."""


def raise_if_full(error: Exception) -> None:
    """Raise what a reader raised as TemporaryFolderFull, where it is about a temporary folder that is full."""
    if isinstance(error, TemporaryFolderFull):
        raise error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        raise TemporaryFolderFull(_FULL.format(tempfile.gettempdir())) from error


class LimitedProcess:
    """A process that answers one request at a time."""

    def __init__(self, program: Path, what: str) -> None:
        """Describe a process; it is not started yet.

        Args:
            what: Name of what one request reads, for messages.
        """
        self._program = program
        self._what = what
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        atexit.register(self.close)

    def ask(self, request: Mapping[str, Any], data: bytes, options: ReadOptions) -> dict[str, Any]:
        """Return the reply to a request about a file.

        Args:
            request: JSON values for the program.

        Raises:
            FileRefused: the file is damaged or passes a limit.
            OSError: the process cannot be started, or ended without a reply.
            TemporaryFolderFull: the reply cannot be written.
        """
        limits = {"memory_bytes": options.memory_bytes, "cpu_s": options.cpu_s, "max_chars": options.max_document_bytes}
        head = json.dumps({"n_bytes": len(data), **limits, **request}).encode() + b"\n"
        with self._lock:
            try:
                reply = self._ask(head, data)
            except OSError:
                self._stop()
                raise
        found: dict[str, Any] = json.loads(reply)
        if "refused" in found:
            raise FileRefused(found["refused"])
        if found.get("error") == "disk":
            raise TemporaryFolderFull(_FULL.format(tempfile.gettempdir()))
        if "error" not in found:
            return found
        what = self._what
        reasons = {
            "encrypted": f"{what} is encrypted; remove its password first",
            "pages": f"{what} has more than {options.max_pages} pages: split it",
            "text": f"the text is longer than {options.max_document_bytes} bytes: split the file",
            "memory": f"{what} takes more than {options.memory_bytes} bytes of memory: split it, or raise "
            "reading.memory_bytes",
            "cpu": f"{what} takes more than {options.cpu_s} s to read: split it",
        }
        raise FileRefused(reasons.get(found["error"], f"{what} is damaged or truncated"))

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
            raise OSError(f"the process that reads files such as {self._what} ended without a reply")
        return reply

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the process; of a process that was forked since, another one."""
        if self._process is None or self._owner != os.getpid():
            environment = os.environ | {
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve address space, which is limited
            }
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(self._program)],  # -P: modules here have names of the standard library
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
