"""State that the processes of one service share on disk: quotas of callers, metrics, facts."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hirag_dist.errors import ConfigError
from hirag_dist.service.caller_quotas import prepare

_QUOTAS = "quotas"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The shared state of a service, as one of its processes uses it.

    Attributes:
        folder: folder of metrics and facts of this run; removed when the service ends.
        quotas: file of the requests that callers have used.
        process: number of this process, from 0.
    """

    folder: Path
    quotas: Path
    process: int = 0

    def for_process(self, process: int) -> ServiceState:
        """Return the state as another process uses it."""
        return replace(self, process=process)


@contextmanager
def open_service_state(state_dir: str | None) -> Iterator[ServiceState]:
    """Set up the shared state of a service for as long as the block lasts.

    Args:
        state_dir: folder in which quotas outlive the service; None for a temporary one.

    Raises:
        ConfigError: the folder cannot be used, or another service uses it.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hirag-serve-")))
        quotas_folder = folder
        if state_dir is not None:
            quotas_folder = Path(state_dir)
            try:
                quotas_folder.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((quotas_folder / _LOCK).open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"another service uses service.state_dir {state_dir}; stop it, or give each a folder of its own"
                ) from None
            except OSError as error:
                raise ConfigError(f"service.state_dir {state_dir} cannot be used: {error.strerror}") from error
        prepare(quotas_folder / _QUOTAS)
        yield ServiceState(folder, quotas_folder / _QUOTAS)
