"""Values that are read from files and read again when the files change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from hirag_dist.errors import ConfigError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Signature: TypeAlias = tuple[tuple[int, ...] | None, ...]


def signature(paths: Sequence[str]) -> Signature:
    """Return what changes when one of the files does; a file that is not there has None.

    Links are followed, so that a link that is moved to another file counts as a change: Kubernetes updates mounted
    secrets that way. In-place writes show by size and time, a change of who may read it by the time of the inode.
    """

    def one(path: str) -> tuple[int, ...] | None:
        try:
            found = Path(path).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    return tuple(one(path) for path in paths)


class ReloadingValue(Generic[T]):
    """What `load` made of some files, and makes again of their next versions.

    A version that cannot be loaded is logged once and the value stays as it was. It is tried again at each look, for
    what stood in the way may have gone without a change of the files: a network's fault, or too many open files.

    Args:
        paths: the files.
        load: reads them; raises ConfigError where they are wrong.
        changed: called with each new value, the first one too.

    Raises:
        ConfigError: the first version is wrong.
    """

    def __init__(
        self, paths: Sequence[str], load: Callable[[], T], changed: Callable[[T], None] = lambda _: None
    ) -> None:
        self._paths = tuple(paths)
        self._load = load
        self._changed = changed
        self._trouble: str | None = None  # what was logged last, so that it is logged once
        self._seen = signature(self._paths)  # before they are read: what changes meanwhile is seen at the next look
        self.value: T = load()
        changed(self.value)

    def refresh(self) -> bool:
        """Look once, and load what is new. Return whether there is a new value. Blocks on the file system."""
        seen = signature(self._paths)
        if seen == self._seen:
            self._trouble = None
            return False
        try:
            value = self._load()
            self._changed(value)
        except Exception as error:  # whatever it is: who no longer looks would never see the files put right
            self._report(error)
            return False
        self.value, self._seen, self._trouble = value, seen, None
        logger.info("read again: %s", ", ".join(self._paths))
        return True

    async def watch(self, poll_s: float) -> None:
        """Look every `poll_s` seconds until cancelled."""
        while True:
            await asyncio.sleep(poll_s)
            await asyncio.to_thread(self.refresh)

    def _report(self, error: Exception) -> None:
        trouble = str(error) if isinstance(error, ConfigError) else repr(error)
        if trouble != self._trouble:
            unforeseen = None if isinstance(error, ConfigError) else error
            logger.error("%s; what was read before stays in force", trouble, exc_info=unforeseen)
        self._trouble = trouble
