"""Calls that wait for a batch: their file in the store, and the port of endpoints that take batches.

A task that may not send leaves the calls it lacks as a file in the store, a line each: what the driver has to know of
the call, a tab, and the line as the endpoint takes it. So the driver passes lines on without reading prompts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import BinaryIO, Final, Protocol, runtime_checkable

from hirag_dist.errors import RequestRejected
from hirag_dist.types import ChatReply, ChatRequest

MAX_LINE_BYTES = 8 << 20
_GROUP_BYTES = 32 << 20
_FILE_BYTES, _MEAN_LINE_BYTES = 16 << 20, 64 << 10  # of a file of results: at most so much, and so much for each call
_CUSTOM_ID = re.compile(r"([0-9a-f]{40})\.([0-9]{1,9})")  # the ledger key, and the tokens of the prompt
BATCH_PRICE = 0.5  # of what the same call costs when it is sent alone
CHAT_URL: Final = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class BatchCall:
    """The properties of a call that the driver needs.

    Attributes:
        key: what its reply is stored under in the ledger.
        most_tokens, most_usd: what it can use, at the price of a batch; counted only in runs with a spending limit.
    """

    key: str
    endpoint: str
    role: str
    most_tokens: int
    most_usd: float


@runtime_checkable
class Batchable(Protocol):
    """A chat model whose calls can be part of a batch."""

    def batch_body(self, request: ChatRequest) -> bytes:
        """Return the JSON that the endpoint is sent for a request."""
        ...


class Collector:
    """The calls that one task lacks. `run` names the build that asks, as `Run` does."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._lines: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, call: BatchCall, body: bytes, input_tokens: int) -> None:
        """Note a call.

        Args:
            body: JSON, as the endpoint takes it.
            input_tokens: of its prompt, about; for endpoints that do not say what a call used.
        """
        head = json.dumps(asdict(call), separators=(",", ":")).encode()
        own = json.dumps({"custom_id": f"{call.key}.{input_tokens}", "method": "POST", "url": CHAT_URL}).encode()
        self._lines[call.key] = head + b"\t" + own[:-1] + b',"body":' + body + b"}\n"

    def content(self) -> bytes:
        """Return the file that the driver reads."""
        return b"".join(self._lines.values())


def read_calls(content: bytes) -> Iterator[tuple[BatchCall, bytes]]:
    """Yield the calls of a file, each with its line for the endpoint, line end included."""
    for line in content.splitlines(keepends=True):  # JSON holds no other line ends than \n: they are escaped
        head, _, own = line.partition(b"\t")
        yield BatchCall(**json.loads(head)), own


def parse_custom_id(custom_id: str) -> tuple[str, int]:
    """Return the ledger key of a call and the tokens of its prompt; ("", 0) if the id was not made by `Collector.add`.

    >>> parse_custom_id("ab" * 20 + ".120")[1]
    120
    """
    found = _CUSTOM_ID.fullmatch(custom_id)
    return (found[1], int(found[2])) if found else ("", 0)


class OversizedFile(RequestRejected):
    """A file of results is larger than its batch can have made it."""


def max_file_bytes(n_lines: int) -> int:
    """Return the most bytes of a file of results for so many calls."""
    return _FILE_BYTES + n_lines * _MEAN_LINE_BYTES


def result_lines(file: BinaryIO, n_lines: int) -> list[bytes]:
    """Return the next lines of a file of results, up to a number and to 32 MiB; none at its end.

    A line that is too long for a reply is empty.
    """
    found: list[bytes] = []
    n_bytes = 0
    while len(found) < n_lines and n_bytes < _GROUP_BYTES and (line := file.readline(MAX_LINE_BYTES)):
        complete = line.endswith(b"\n") or len(line) < MAX_LINE_BYTES
        n_bytes += len(line)
        found.append(line if complete else b"")
        while not complete:
            rest = file.readline(MAX_LINE_BYTES)
            complete = not rest or rest.endswith(b"\n")
    return found


@dataclass(frozen=True, slots=True)
class BatchState:
    """A batch at its endpoint.

    Attributes:
        ended: whether it will not change any more.
        problem: why it was given up, with what to do about it; "" where it was done, or part of it in time.
        files: ids of what it wrote, results and errors.
    """

    id: str
    ended: bool
    problem: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchLine:
    """The outcome of a call.

    Attributes:
        key: its ledger key; "" where the line cannot be read.
        reply: None where there is none.
        refused: whether the endpoint will not answer this call, however often it is asked.
        counted: tokens of the prompt by our own count; 0 where it is not known.
    """

    key: str
    reply: ChatReply | None
    refused: bool = False
    counted: int = 0


class BatchEndpoint(Protocol):
    """An endpoint that takes batches. Calls raise as `ports.ChatModel.complete` does."""

    async def check(self) -> None:
        """Raise BackendUnavailable where the endpoint takes no batches. Changes nothing there."""
        ...

    async def upload(self, file_name: str, content: BinaryIO) -> str:
        """Return the id of the uploaded lines."""
        ...

    async def create(self, file_id: str, own_id: str) -> BatchState:
        """Begin a batch that `find` knows by `own_id`."""
        ...

    async def find(self, own_id: str, since: float) -> BatchState | None:
        """Return the batch that was begun with an id, None where there is none; `since` seconds of the epoch."""
        ...

    async def state(self, batch_id: str) -> BatchState:
        """Return how a batch is."""
        ...

    async def download(self, file_id: str, to: BinaryIO, max_bytes: int) -> None:
        """Write what a batch wrote to a file, from its beginning. Raises OversizedFile where it is larger."""
        ...

    async def remove(self, file_id: str) -> None:
        """Remove a file."""
        ...

    def read(self, line: bytes) -> BatchLine:
        """Return the outcome that a line of a batch's files reports."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
