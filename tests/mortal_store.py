"""A store whose writer dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from hirag_dist.storage.layout import LOCK
from hirag_dist.storage.store import Store


class Killed(BaseException):
    """The command ended here; it says which file it changed last."""


class MortalStore(Store):
    """Notes the files of an index as they are changed, and ends its writer right after the n-th change."""

    def __init__(self, uri: str, dies_at: int | None, die: Callable[[], None] | None = None) -> None:
        super().__init__(uri)
        self.changed: list[str] = []
        self._dies_at = dies_at
        self._die = die

    def write_bytes(self, path: str, *arguments: Any, **options: Any) -> None:
        super().write_bytes(path, *arguments, **options)
        self._count(path)

    def append(self, path: str, data: bytes) -> tuple[str, int]:
        found = super().append(path, data)
        self._count(path)
        return found

    @contextmanager
    def create(self, path: str, **options: Any) -> Iterator[BinaryIO]:
        with super().create(path, **options) as file:
            yield file
        self._count(path)

    def copy(self, source: str, target: str, **options: Any) -> None:
        super().copy(source, target, **options)
        self._count(target)

    def delete(self, path: str) -> None:
        super().delete(path)
        self._count(path)

    def _count(self, path: str) -> None:
        if path == LOCK:
            return
        self.changed.append(path)
        if len(self.changed) == self._dies_at:
            if self._die is not None:
                self._die()
            raise Killed(path)
