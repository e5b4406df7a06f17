"""Values that are loaded from files, and reloaded when the files change."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from hirag_dist.errors import ConfigError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Signature: TypeAlias = tuple[tuple[int, ...] | None, ...]


def signature(paths: Sequence[str]) -> Signature:
    """Return a value that changes with any of the files; a missing file has None.

    Links are followed, so that a link to another file counts as a change: Kubernetes updates mounted secrets that way.
    In-place writes change size and time, a change of permissions changes the time of the inode.
    """

    def of_file(path: str) -> tuple[int, ...] | None:
        try:
            stat = Path(path).stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

    return tuple(of_file(path) for path in paths)


@dataclass(frozen=True, slots=True)
class Lapse(Generic[T]):
    """Loss of a value whose files are gone.

    Attributes:
        error: errors of loading that mean that the files are gone, not that they are wrong.
        value: takes the place of the value then.
        after_s: seconds after which it does; until then the files may come back.
        meaning: of `value`, for the log.
    """

    error: type[ConfigError]
    value: T
    after_s: float
    meaning: str


class ReloadingValue(Generic[T]):
    """A value loaded from files, and reloaded when they change.

    A version that cannot be loaded is logged once, and the value stays as it was. Loading is tried again at each check,
    since the cause may disappear without a change of the files: a network error, or too many open files.

    Args:
        load: reads them; raises ConfigError if they are wrong.
        lapse: what happens if the files are gone; None keeps the value.

    Raises:
        ConfigError: the first version is wrong.
    """

    def __init__(
        self,
        paths: Sequence[str],
        load: Callable[[], T],
        lapse: Lapse[T] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = tuple(paths)
        self._load = load
        self._lapse = lapse
        self._clock = clock
        self._gone_since: float | None = None
        self._lapsed = False
        self._last_failure: str | None = None  # the message logged last: each is logged once
        # taken before the files are read: a change meanwhile is found at the next check
        self._signature = signature(self._paths)
        self.value: T = load()

    def refresh(self) -> bool:
        """Reload the value if the files changed. Return whether there is a new value. Blocks on the file system."""
        current = signature(self._paths)
        if current == self._signature and not self._lapsed:
            self._last_failure = self._gone_since = None
            return False
        try:
            value = self._load()
        except Exception as error:  # of any kind: the checks must go on until the files are corrected
            return self._fail(error)
        self.value, self._signature, self._last_failure = value, current, None
        self._gone_since, self._lapsed = None, False
        logger.info("read again: %s", ", ".join(self._paths))
        return True

    async def watch(self, poll_s: float) -> None:
        """Call `refresh` every `poll_s` seconds until cancelled."""
        while True:
            await asyncio.sleep(poll_s)
            await asyncio.to_thread(self.refresh)

    @property
    def failed(self) -> bool:
        """True if the files could not be loaded at the last check."""
        return self._last_failure is not None

    def _fail(self, error: Exception) -> bool:
        """Log a failure; replace the value if the files have been gone for too long. Return whether it was replaced."""
        message = str(error) if isinstance(error, ConfigError) else repr(error)
        lapse = self._lapse
        gone = lapse is not None and isinstance(error, lapse.error)
        if message != self._last_failure:
            unexpected = None if isinstance(error, ConfigError) else error
            consequence = "what was read before stays in force"
            if lapse is not None and gone:
                consequence = lapse.meaning if self._lapsed else f"{consequence} for {lapse.after_s:g} s"
            logger.error("%s; %s", message, consequence, exc_info=unexpected)
        self._last_failure = message
        if lapse is None or not gone or self._lapsed:
            self._gone_since = None
            return False
        self._gone_since = self._clock() if self._gone_since is None else self._gone_since
        if self._clock() - self._gone_since < lapse.after_s:
            return False
        self.value, self._lapsed = lapse.value, True
        logger.error("%s, for %g s; %s", message, lapse.after_s, lapse.meaning)
        return True
