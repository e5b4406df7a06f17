"""An input that is followed: a loop over `index`, which compares the files of the input with those it has applied."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hirag_dist.application.build import BuildOptions, run_build
from hirag_dist.application.index_result import IndexResult
from hirag_dist.composition.build_records import last_build
from hirag_dist.composition.models import BUILD_ROLES, check_prices
from hirag_dist.config.model import Config
from hirag_dist.errors import BudgetReached, ConfigError, HiragError
from hirag_dist.readers import find_inputs
from hirag_dist.service.metrics_server import WatchMetrics
from hirag_dist.storage.store import Store

Listing = Mapping[str, tuple[int, str]]  # URI → size and time of the last change


@dataclass
class Watch:
    """Follows an input in rounds. The state is in the index: a new process begins with an update of all of the input.

    Attributes:
        notify: called with the result of each update, and with each failure that is not the one before.
        monotonic: seconds that no change of the system's clock reaches.
    """

    listing: Callable[[], Listing]
    update: Callable[[], IndexResult]
    notify: Callable[[IndexResult | HiragError], None]
    metrics: WatchMetrics
    monotonic: Callable[[], float] = time.monotonic
    _applied: Listing | None = None
    _changes: dict[str, float] = field(default_factory=dict)  # URI → when its change was found
    _message: str = ""  # message of the last failure

    def __post_init__(self) -> None:
        self.metrics.oldest.set_function(self.oldest_change_s)

    def oldest_change_s(self) -> float:
        """Return the age of the oldest change that no snapshot has; 0 if there is none."""
        return max(self.monotonic() - min(self._changes.values()), 0.0) if self._changes else 0.0

    def run(self, every_s: float, sleep: Callable[[float], object] = time.sleep) -> None:
        """Look at the input again and again until `sleep` raises."""
        while True:
            self.round()
            sleep(every_s)

    def round(self) -> None:
        """List the input, and update the index if it differed in the round before: files may still be copied.

        Raises:
            ConfigError: the configuration is wrong, which no later attempt would change.
            BudgetReached: what may be spent is spent.
        """
        try:
            files, now, before = self.listing(), self.monotonic(), self._applied or {}
            changed = {uri for uri in {*before, *files} if before.get(uri) != files.get(uri)}
            self._changes = {uri: self._changes.get(uri, now) for uri in changed}
            if self._applied is None or any(found < now for found in self._changes.values()):
                result = self.update()
                self._applied, self._changes = files, {}
                self.metrics.updates.inc(not result.up_to_date)
                self.notify(result)
            self._message = ""
        except (ConfigError, BudgetReached):
            raise
        except HiragError as error:
            self.metrics.failures.inc()
            if str(error) != self._message:
                self.notify(error)
            self._message = str(error)


def make_watch(
    inputs: Sequence[str],
    index_uri: str,
    config: Config,
    options: BuildOptions,
    notify: Callable[[IndexResult | HiragError], None],
    metrics: WatchMetrics,
) -> Watch:
    """Return a watch of files that updates an index; the spending limit holds for all updates together."""
    check_prices(config, (*BUILD_ROLES, "embed"), options.max_usd)
    store, left = Store(index_uri), options.max_usd

    def update() -> IndexResult:
        nonlocal left
        before = (last_build(store) or {}).get("id")
        try:
            return run_build(inputs, index_uri, config, replace(options, max_usd=left))
        finally:
            record = last_build(store) or {}
            if left is not None and record.get("id") != before:
                left = max(left - float(record.get("sent", {}).get("usd") or 0.0), 0.0)

    return Watch(lambda: list_files(inputs, follow_links=config.reading.follow_links), update, notify, metrics)


def list_files(inputs: Sequence[str], *, follow_links: bool = False) -> Listing:
    """Return size and time of the last change of all files of the inputs."""
    return {file.uri: (file.size_bytes, file.modified) for file in find_inputs(inputs, follow_links=follow_links)}
