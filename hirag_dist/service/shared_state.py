"""What the processes of one service share on disk: limits of callers, counts, facts."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hirag_dist.errors import ConfigError
from hirag_dist.service.caller_quotas import prepare

_LIMITS = "limits"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The place of one process in a service.

    Attributes:
        folder: of this run, where counts and facts are left; gone when the service ends.
        limits: file of what callers have used.
        process: number of this process, from 0.
    """

    folder: Path
    limits: Path
    process: int = 0

    def of(self, process: int) -> ServiceState:
        """Return the place of another process."""
        return replace(self, process=process)


@contextmanager
def open_service_state(state_dir: str | None) -> Iterator[ServiceState]:
    """Set up what a service's processes share, for as long as the block lasts.

    Args:
        state_dir: where quotas outlive the service; None forgets them with it.

    Raises:
        ConfigError: the folder cannot be used, or another service uses it.
    """
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="hirag-serve-")))
        kept = folder
        if state_dir is not None:
            kept = Path(state_dir)
            try:
                kept.mkdir(parents=True, exist_ok=True)
                lock = held.enter_context((kept / _LOCK).open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"another service uses service.state_dir {state_dir}; stop it, or give each a folder of its own"
                ) from None
            except OSError as error:
                raise ConfigError(f"service.state_dir {state_dir} cannot be used: {error.strerror}") from error
        prepare(kept / _LIMITS)
        yield ServiceState(folder, kept / _LIMITS)
