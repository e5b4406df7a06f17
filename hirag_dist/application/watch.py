"""An input that is followed: a loop over `index`, which compares the files of the input with those it has applied."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from hirag_dist.application.build import BuildOptions, run_build
from hirag_dist.application.index_result import IndexResult
from hirag_dist.composition.build_records import earlier_builds, last_build
from hirag_dist.composition.models import BUILD_ROLES, check_prices
from hirag_dist.config.model import Config
from hirag_dist.errors import BudgetReached, ConfigError, HiragError, IndexBusy
from hirag_dist.indexing.base import NOTES
from hirag_dist.readers import find_inputs
from hirag_dist.service.metrics_server import WatchMetrics
from hirag_dist.storage.store import Store

_DAY_S = 86_400.0
Listing = Mapping[str, tuple[int, str]]  # URI → size and time of the last change


@dataclass(frozen=True)
class WatchEvent:
    """Outcome of a round that did something; a failure that repeats itself is one event.

    Attributes:
        kind: updated; unchanged: the files changed, but no document; waiting: the budget of the day is spent, or
            another build holds the index; failed: it is tried again.
        message: sentence for people; empty after an update.
        n_files: files that have changed since the last update.
        age_s: seconds since the first of these changes was found.
        result: result of the update.
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
        update: makes the index equal to the input, spending at most this many dollars; None: no limit.
        spent: returns the dollars that builds of the index have spent since a time.
        max_usd_per_day: spending limit of a day, UTC; changes wait for the next day. None for no limit.
        clock: seconds since the epoch, for the day of the budget.
        monotonic: seconds that no change of the system's clock reaches, for ages.
    """

    listing: Callable[[], Listing]
    update: Callable[[float | None], IndexResult]
    notify: Callable[[WatchEvent], None]
    metrics: WatchMetrics
    spent: Callable[[float], float] = lambda since: 0.0
    max_usd_per_day: float | None = None
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _applied: Listing | None = None
    _changes: dict[str, float] = field(default_factory=dict)  # URI → when its change was found
    _message: str = ""  # message of the last failure
    _spent_day: float | None = None

    def __post_init__(self) -> None:
        self.metrics.follow(self.oldest_change_s, lambda: len(self._changes))

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
        """
        try:
            files, now, before = self.listing(), self.monotonic(), self._applied or {}
            changed = {uri for uri in {*before, *files} if before.get(uri) != files.get(uri)}
            self._changes = {uri: self._changes.get(uri, now) for uri in changed}
            if self._applied is None or any(found < now for found in self._changes.values()):
                self._apply(files)
            self._message = ""
        except ConfigError:
            raise
        except (BudgetReached, IndexBusy) as error:
            self._report("waiting", str(error))
        except HiragError as error:
            self.metrics.count_failure()
            self._report("failed", f"{error}; it is tried again")

    def _apply(self, files: Listing) -> None:
        day, left = self.clock() // _DAY_S * _DAY_S, self.max_usd_per_day
        until = datetime.fromtimestamp(day + _DAY_S, UTC).isoformat(timespec="minutes")
        if left is not None:
            left -= self.spent(day)
            if left <= 0 or day == self._spent_day:
                raise BudgetReached(f"the ${self.max_usd_per_day:g} of today are spent; changes wait until {until}")
        try:
            result = self.update(left)
        except BudgetReached as error:
            self._spent_day = day  # what is left of the budget is too little for the next call
            raise BudgetReached(f"{error}; changes wait until {until}") from error
        n_files, age_s = len(self._changes), self.oldest_change_s()
        self._applied, self._changes = files, {}
        self.metrics.show_snapshot(result.manifest.counts["documents"], debt_tokens(result))
        if not result.up_to_date:
            self.metrics.count_update()
        self.notify(WatchEvent("unchanged" if result.up_to_date else "updated", "", n_files, age_s, result))

    def _report(self, kind: Literal["waiting", "failed"], message: str) -> None:
        if message != self._message:
            self.notify(WatchEvent(kind, message, len(self._changes), self.oldest_change_s()))
        self._message = message


def make_watch(
    inputs: Sequence[str],
    index_uri: str,
    config: Config,
    max_usd_per_day: float | None,
    notify: Callable[[WatchEvent], None],
    metrics: WatchMetrics,
) -> Watch:
    """Return a watch of files, folders, globs or object-store URIs that updates an index.

    Args:
        max_usd_per_day: see `Watch`.
        notify: called after each round that did something.
    """
    check_prices(config, (*BUILD_ROLES, "embed"), max_usd_per_day)
    store, build = Store(index_uri), BuildOptions()

    def update(max_usd: float | None) -> IndexResult:
        return run_build(inputs, index_uri, config, replace(build, max_usd=max_usd))

    def listing() -> Listing:
        return list_files(inputs, follow_links=config.reading.follow_links)

    return Watch(listing, update, notify, metrics, lambda since: dollars_since(store, since), max_usd_per_day)


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
