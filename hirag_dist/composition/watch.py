"""An input that is followed: changes of its files are gathered and applied as updates of the index."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from hirag_dist.composition.build_records import earlier_builds, last_build
from hirag_dist.composition.index_result import IndexResult
from hirag_dist.composition.indexing import BuildOptions, run_build
from hirag_dist.composition.models import BUILD_ROLES, check_prices
from hirag_dist.config.model import Config
from hirag_dist.errors import BudgetReached, ConfigError, HiragError, IndexBusy
from hirag_dist.indexing.update.base import NOTES
from hirag_dist.readers import find_inputs
from hirag_dist.service.watch_metrics import WatchMetrics
from hirag_dist.storage.store import Store

_DAY_S = 86_400.0
Listing = Mapping[str, tuple[int, str]]  # URI → size and time of the last change


@dataclass(frozen=True)
class WatchOptions:
    """When changes are applied.

    Attributes:
        every_s: at most so long after the first change.
        batch: or as soon as so many files have changed; None for no limit.
        poll_s: between two listings.
        max_backoff_s: between two attempts after failures of updates; after those of listings, `every_s`.
        max_usd_per_day: spending limit of a day, UTC; changes wait for the next day. None for none.
    """

    every_s: float = 60.0
    batch: int | None = None
    poll_s: float = 5.0
    max_backoff_s: float = 600.0
    max_usd_per_day: float | None = None


@dataclass(frozen=True)
class WatchEvent:
    """Outcome of a round of the watch.

    Attributes:
        kind: updated; unchanged: the files changed, but no document; waiting: the budget of the day is spent, or
            another build holds the index; failed: it is tried again.
        message: for people, empty after an update.
        n_files: that were pending.
        age_s: of the oldest change that was pending.
        result: of the update.
    """

    kind: Literal["updated", "unchanged", "waiting", "failed"]
    message: str
    n_files: int
    age_s: float
    result: IndexResult | None = None


@dataclass
class Watch:
    """Follows an input in rounds. The state is in the index: a new process begins with an update of all of the input.

    Attributes:
        listing: returns the files of the input.
        update: makes the index equal to the input, spending at most so many dollars; None: no limit.
        spent: returns the dollars that builds of the index spent in the day that begins at a time.
        clock: seconds since the epoch, for the day of the budget.
        monotonic: seconds that no change of the system's clock reaches, for all durations.
    """

    listing: Callable[[], Listing]
    update: Callable[[float | None], IndexResult]
    options: WatchOptions
    notify: Callable[[WatchEvent], None]
    metrics: WatchMetrics
    spent: Callable[[float], float] = lambda since: 0.0
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _applied: Listing | None = None
    _pending: dict[str, float] = field(default_factory=dict)  # URI → when its change was found
    _failures: int = 0
    _not_before: float = -math.inf
    _spent_day: float | None = None  # the day whose budget is spent

    def __post_init__(self) -> None:
        self.metrics.follow(self.oldest_change_s, lambda: len(self._pending))

    def oldest_change_s(self) -> float:
        """Return the age of the oldest change that no snapshot has; 0 if there is none."""
        return max(self.monotonic() - min(self._pending.values()), 0.0) if self._pending else 0.0

    def run(self, sleep: Callable[[float], object]) -> None:
        """Follow the input until `sleep` raises."""
        while True:
            sleep(self.round())

    def round(self) -> float:
        """List the input, apply its changes if that is due, and return the seconds until the next round.

        Raises:
            ConfigError: the configuration is wrong, which no later attempt would change.
        """
        now = self.monotonic()
        if now < self._not_before:
            return min(self._not_before - now, self.options.poll_s)
        if self._spent_day == _day_of(self.clock()):
            return self.options.poll_s
        self._spent_day = None
        try:
            found = self.listing()
        except HiragError as error:  # soon tried again: a first file may appear in an empty folder at any time
            self._back_off(str(error), max(self.options.every_s, self.options.poll_s))
            return self.options.poll_s
        try:
            self._gather(found, now)
            if self._is_due(now):
                self._apply(found)
            self._failures = 0
        except ConfigError:
            raise
        except BudgetReached as error:
            self._wait_for_tomorrow(str(error))
        except IndexBusy as error:
            self._not_before = now + self.options.poll_s
            self._report("waiting", str(error))
        except HiragError as error:
            self._back_off(str(error), self.options.max_backoff_s)
        return self.options.poll_s

    def _gather(self, found: Listing, now: float) -> None:
        """Note which files differ from those that the index has."""
        before = self._applied or {}
        changed = {uri for uri in {*before, *found} if before.get(uri) != found.get(uri)}
        self._pending = {uri: self._pending.get(uri, now) for uri in sorted(changed)}

    def _is_due(self, now: float) -> bool:
        if self._applied is None:  # what the index has is not known yet
            return True
        if not self._pending:
            return False
        full = self.options.batch is not None and len(self._pending) >= self.options.batch
        return full or now - min(self._pending.values()) >= self.options.every_s

    def _apply(self, found: Listing) -> None:
        left = None
        if self.options.max_usd_per_day is not None:
            left = self.options.max_usd_per_day - self.spent(_day_of(self.clock()))
            if left <= 0:
                raise BudgetReached(f"the ${self.options.max_usd_per_day:g} of today are spent")
        result = self.update(left)
        n_files, age_s = len(self._pending), self.oldest_change_s()
        self._applied, self._pending = found, {}
        self.metrics.show_snapshot(result.manifest.counts["documents"], debt_tokens(result))
        kind: Literal["updated", "unchanged"] = "unchanged" if result.up_to_date else "updated"
        if kind == "updated":
            self.metrics.count_update()
        self.notify(WatchEvent(kind, "", n_files, age_s, result))

    def _wait_for_tomorrow(self, message: str) -> None:
        self._spent_day = _day_of(self.clock())
        until = datetime.fromtimestamp(self._spent_day + _DAY_S, UTC).isoformat(timespec="minutes")
        self._report("waiting", f"{message}; changes wait until {until}")

    def _back_off(self, message: str, max_s: float) -> None:
        self.metrics.count_failure()
        self._failures += 1
        wait_s = min(self.options.poll_s * 2**self._failures, max_s)
        self._not_before = self.monotonic() + wait_s
        self._report("failed", f"{message}; the next attempt is in {wait_s:.0f} s")

    def _report(self, kind: Literal["waiting", "failed"], message: str) -> None:
        self.notify(WatchEvent(kind, message, len(self._pending), self.oldest_change_s()))


def make_watch(
    inputs: Sequence[str],
    index_uri: str,
    config: Config,
    options: WatchOptions,
    build: BuildOptions,
    notify: Callable[[WatchEvent], None],
    metrics: WatchMetrics,
) -> Watch:
    """Return a watch of files, folders, globs or object-store URIs that updates an index.

    Args:
        build: options of each update.
        notify: called after each round that did something.
    """
    check_prices(config, (*BUILD_ROLES, "embed"), options.max_usd_per_day)
    store = Store(index_uri)

    def update(max_usd: float | None) -> IndexResult:
        return run_build(inputs, index_uri, config, replace(build, max_usd=max_usd))

    def listing() -> Listing:
        return list_files(inputs, follow_links=config.reading.follow_links)

    return Watch(listing, update, options, notify, metrics, lambda since: dollars_since(store, since))


def list_files(inputs: Sequence[str], *, follow_links: bool = False) -> Listing:
    """Return size and time of the last change of all files of the inputs.

    Raises:
        InputError: an input is not there, or holds no file.
    """
    return {file.uri: (file.size_bytes, file.modified) for file in find_inputs(inputs, follow_links=follow_links)}


def dollars_since(store: Store, since: float) -> float:
    """Return the dollars of the builds of an index that began at a time or later, as far as records are kept."""
    last = last_build(store)
    records = [*([] if last is None else [last]), *earlier_builds(store)]
    return sum(
        float(record.get("sent", {}).get("usd") or 0.0)
        for record in records
        if datetime.fromisoformat(record["started_at"]).timestamp() >= since
    )


def debt_tokens(result: IndexResult) -> int:
    """Return the estimated tokens of the texts of a snapshot that updates have put off."""
    debt = (result.manifest.notes.get(NOTES) or {}).get("debt", {})
    return sum(int(part["tokens"]) for part in debt.values())


def _day_of(now: float) -> float:
    """Return when the day of a time began, UTC."""
    return now - now % _DAY_S
