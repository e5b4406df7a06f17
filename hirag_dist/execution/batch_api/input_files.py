"""Calls of tasks as input files of batches: of limited size, within the spending limit."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from hirag_dist.errors import BudgetReached, StoreError
from hirag_dist.llm.batch_api import BatchCall, read_calls
from hirag_dist.llm.limits.spending import out_of_tokens, out_of_usd
from hirag_dist.storage.store import Store

MAX_BYTES = 100_000_000  # of a file; OpenAI takes twice that


class SpendingGuard:
    """Remaining spending limit, counting the maximal cost of every call."""

    def __init__(
        self, max_usd: float | None, max_tokens: int | None, tokens: int, usd: float, over_count: float = 1.0
    ) -> None:
        """Begin.

        Args:
            max_usd, max_tokens: limits of the run; None for none.
            tokens, usd: spent so far.
            over_count: largest ratio of an endpoint's token count of a prompt to the estimate.
        """
        self._max_usd, self._max_tokens = max_usd, max_tokens
        self._spent_tokens, self._spent_usd = tokens, usd
        self._left_tokens = math.inf if max_tokens is None else max_tokens - tokens
        self._left_usd = math.inf if max_usd is None else max_usd - usd
        self._over_count = over_count
        self._refused: BatchCall | None = None

    def pay(self, call: BatchCall) -> bool:
        """Reserve the maximal cost of a call; return whether the limit allows it."""
        most_tokens, most_usd = call.most_tokens * self._over_count, call.most_usd * self._over_count
        if most_tokens > self._left_tokens or most_usd > self._left_usd:
            self._refused = self._refused or call
            return False
        self._left_tokens -= most_tokens
        self._left_usd -= most_usd
        return True

    def refusal(self) -> BudgetReached:
        """Return the error for a batch without any call within the limit."""
        call = self._refused
        assert call is not None, "there was something to pay"
        most_usd = call.most_usd * self._over_count
        if self._max_usd is not None and most_usd > self._left_usd:
            return out_of_usd(self._max_usd, self._spent_usd, most_usd)
        assert self._max_tokens is not None, "one of the two limits refused it"
        return out_of_tokens(self._max_tokens, self._spent_tokens, round(call.most_tokens * self._over_count))


class InputFile:
    """A file for one endpoint, on this machine's disk."""

    def __init__(self, endpoint: str, role: str, file: BinaryIO) -> None:
        self.endpoint, self.role, self.file = endpoint, role, file
        self.n_lines = self.most_tokens = self._n_bytes = 0
        self.most_usd = 0.0

    def has_room(self, line: bytes, max_lines: int) -> bool:
        """Return whether a line fits."""
        return self.n_lines < max_lines and self._n_bytes + len(line) <= MAX_BYTES

    def add(self, call: BatchCall, line: bytes) -> None:
        """Add a call."""
        self.file.write(line)
        self.n_lines += 1
        self._n_bytes += len(line)
        self.most_tokens += call.most_tokens
        self.most_usd += call.most_usd


def input_files(store: Store, folder: str, guard: SpendingGuard, max_lines: int) -> Generator[InputFile]:
    """Yield the calls of a folder as files, each open until the next is asked for; close the generator.

    A call that several tasks lack is in one of them. Calls beyond the spending limit are in none.

    Raises:
        StoreError: the folder cannot be read, or this machine's disk is full.
    """
    begun: dict[str, InputFile] = {}
    seen: set[bytes] = set()  # some 80 bytes a call
    try:
        for name in store.names(folder):
            for call, line in read_calls(store.read_bytes(f"{folder}/{name}")):
                key = bytes.fromhex(call.key)
                if key in seen or not guard.pay(call):
                    continue
                seen.add(key)
                current = begun.get(call.endpoint)
                if current is not None and not current.has_room(line, max_lines):
                    yield current
                    begun.pop(call.endpoint).file.close()
                    current = None
                with _local_errors():
                    if current is None:
                        file = _new_file()
                        current = begun[call.endpoint] = InputFile(call.endpoint, call.role, file)
                    current.add(call, line)
        yield from begun.values()
    finally:
        for each in begun.values():
            each.file.close()


@contextmanager
def temporary_file() -> Iterator[BinaryIO]:
    """Lend a file on this machine's disk. Raises StoreError where there can be none."""
    with _local_errors():
        file = _new_file()
    with file:
        yield file


def _new_file() -> BinaryIO:
    return cast(BinaryIO, TemporaryFile())


@contextmanager
def _local_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot keep calls for a batch on this machine's disk: {error}; free space there") from error
