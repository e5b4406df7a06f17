"""Indexes of a catalogue as they are configured, limits of those that are open, and counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hirag_dist.config.index_names import matches_any
from hirag_dist.service.auth.caller_registry import Caller


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """An index of a catalogue.

    Attributes:
        name: as requests give it.
        uri: of its folder.
        title: for people.
        callers: patterns of the names of callers who may ask it, of those who may ask it by the callers file; None:
            all of these.
        max_concurrent: requests at a time in a process; None: as the catalogue has it.
        map_reduce: whether modes that cost a model call for each part of the corpus are allowed; None: as the service
            has it.
    """

    name: str
    uri: str
    title: str = ""
    callers: tuple[str, ...] | None = None
    max_concurrent: int | None = None
    map_reduce: bool | None = None

    def admits(self, caller: Caller) -> bool:
        """Return whether a caller may ask the index."""
        return caller.may_ask(self.name) and (self.callers is None or matches_any(caller.name, self.callers))


@dataclass(frozen=True, slots=True)
class CatalogueLimits:
    """Limits of the open indexes of one process.

    Attributes:
        max_open: indexes that are open at a time; the least recently used one without a request is closed for another.
        idle_s: seconds without a request after which an index is closed; 0: never.
        max_concurrent: requests at a time to one index.
        poll_s: seconds between two listings, and between two checks of an open index; more where there are many.
    """

    max_open: int = 200
    idle_s: float = 3600.0
    max_concurrent: int = 32
    poll_s: float = 2.0


class CatalogueCounts:
    """Counts of a catalogue, for the metrics.

    Attributes:
        events: opened, failed (openings), and closed by limit, idle, removed or changed.
        listing_failed: whether the last listing failed.
    """

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.listing_failed = False
