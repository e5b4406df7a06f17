"""A JSON line a call, so that what was asked and answered can be audited after a crash of either side."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import asdict, dataclass

from hirag_dist.errors import ConfigError
from hirag_dist.testing.simulator import openai_schema

FLUSH_S = 0.2


@dataclass(slots=True)
class LoggedCall:
    """One call as it goes.

    Attributes:
        path: of the API.
        request: hash of the body, in hex; empty where it could not be read.
        attempt: the n-th time, from 0, that the request was let in; None where it was not.
        status: what was answered; None where nothing was, or not all of it.
        fault: which was given.
        abandoned: the caller had gone when the reply was ready.
        in_flight: calls that were being answered when this one was let in, itself included.
    """

    path: str
    request: str = ""
    attempt: int | None = None
    status: int | None = None
    fault: str | None = None
    abandoned: bool = False
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    in_flight: int = 0
    started: float = 0.0

    def line(self, seconds: float, now: float) -> bytes:
        """Return the line. `seconds` is how long it took, `now` the epoch's when it ended."""
        data = asdict(self)
        del data["started"]
        data |= {"time": round(now, 4), "seconds": round(seconds, 4)}
        return openai_schema.dump(data) + b"\n"


class CallLog:
    """Lines are handed to the operating system within 200 ms, many at a time; a killed process loses no more.

    Args:
        path: of the file, which is added to; None writes nothing.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: str | None) -> None:
        self._lines: list[bytes] = []
        self._oldest = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._file: int | None = None
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            except OSError as error:
                raise ConfigError(f"simulate-llm: cannot write the log {path}: {error.strerror}") from error

    def add(self, visit: LoggedCall) -> None:
        """Add a call that has ended."""
        if self._file is None:
            return
        now = time.monotonic()
        if not self._lines:
            self._oldest = now
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
        self._lines.append(visit.line(now - visit.started, time.time()))
        if now - self._oldest >= FLUSH_S:
            self.flush()  # the timer is late: the loop has been busy with calls

    def flush(self) -> None:
        """Write what is there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._file is None or not self._lines:
            return
        left = memoryview(b"".join(self._lines))
        self._lines.clear()
        while left:
            left = left[os.write(self._file, left) :]

    def close(self) -> None:
        """Write what is there and close the file."""
        self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None
