"""The treasury's books of one endpoint: what each worker holds, and who waits for what.

Sums over workers are kept, not made: a thousand workers report some thousand times a second, and a message must cost
the same however many they are.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge

from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.protocol import Lease, LeaseDemand, WorkerUsage


@dataclass(slots=True)
class WorkerLease:
    """A worker as the treasury sees it, at one endpoint. Its desk changes it, and keeps the sums.

    Attributes:
        slots_lent, lent: numbers of its latest loans, of slots and of permits.
        known: of the latest loan of permits that it knew of when it last reported.
        slots: it may have in flight; busy: it has. waits: for loans.
        asks: for slots.
        used_tokens, used_usd, held_tokens, held_usd: as of `WorkerUsage`.
    """

    slots_lent: int
    lent: int
    known: int = 0
    slots: int = 0
    busy: int = 0
    used_tokens: int = 0
    used_usd: float = 0.0
    held_tokens: int = 0
    held_usd: float = 0.0
    waits: int = 0
    asks: int = 0

    @property
    def active(self) -> bool:
        """Whether it has something to do."""
        return self.busy > 0 or self.waits > 0


@dataclass(slots=True, eq=False)
class LeaseRequest:
    """One worker's question that has no answer yet. Its desk says whether it is `queued`."""

    holder: str
    want: LeaseDemand
    order: int
    answer: asyncio.Future[Lease]
    queued: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """What comes first has the lower one."""
        return self.want.priority, self.order

    def waits(self) -> bool:
        """Whether an answer can still arrive."""
        return not (self.answer.done() or self.answer.get_loop().is_closed())


def _rank(each: LeaseRequest) -> tuple[int, int]:
    return each.rank


class LeaseQueue:
    """Questions, by rank. Holds some thousands; joining and leaving it costs no walk over them."""

    def __init__(self) -> None:
        self._waiting: list[LeaseRequest] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[LeaseRequest]:
        return iter(self._waiting)

    def join(self, each: LeaseRequest) -> None:
        """Take a question in."""
        insort(self._waiting, each, key=_rank)

    def leave(self, each: LeaseRequest) -> None:
        """Let a question go that is here or was."""
        at = bisect_left(self._waiting, each.rank, key=_rank)
        if at < len(self._waiting) and self._waiting[at] is each:
            del self._waiting[at]

    def head(self) -> LeaseRequest | None:
        """Return the first that still waits; None where nobody does."""
        while self._waiting and not self._waiting[0].waits():
            del self._waiting[0]
        return self._waiting[0] if self._waiting else None

    def in_turn(self) -> list[LeaseRequest]:
        """Return those that still wait, in order; the others are gone from here."""
        if not all(each.waits() for each in self._waiting):
            self._waiting = [each for each in self._waiting if each.waits()]
        return list(self._waiting)


@dataclass(slots=True)
class EndpointLeases:
    """One endpoint's accounts and queues.

    Attributes:
        allowance: what the endpoint may be asked.
        told_until: until when a long pause has been logged.
        refusals: 429s since the last answer; refused_since: the first of them came.
        complain_at: when they are logged next.
        for_slots, for_permits, for_money: who waits; for the last nothing else is missing, whatever the pace.
        timer: when those for permits are looked at again.
    """

    name: str
    allowance: EndpointLimits
    told_until: float = -math.inf
    refusals: int = 0
    refused_since: float = 0.0
    complain_at: float = math.inf
    accounts: dict[str, WorkerLease] = field(default_factory=dict)
    for_slots: LeaseQueue = field(default_factory=LeaseQueue)
    for_permits: LeaseQueue = field(default_factory=LeaseQueue)
    for_money: LeaseQueue = field(default_factory=LeaseQueue)
    timer: asyncio.TimerHandle | None = None
    slots: int = 0  # lent
    busy: int = 0  # calls in flight
    active: int = 0  # workers with something to do
    hungry: int = 0  # workers that wait for slots
    hungry_slots: int = 0  # that those hold

    def free_slots(self) -> int:
        """Return the slots that nobody holds; below zero where the window has become smaller than what was lent."""
        return int(self.allowance.window) - self.slots

    def share(self, account: WorkerLease) -> int:
        """Return the slots that a worker may have, as if it, too, asked for more.

        It is an equal part of the window, or of what those leave that want no more than they hold, where that is more:
        a worker that waits for its last reply has no use for its part. Nothing can stay free while somebody waits,
        since where slots are free, whoever holds the fewest of those who wait holds less than this.
        """
        window = int(self.allowance.window)
        hungry, content = self.hungry, self.slots - self.hungry_slots
        if not account.asks:
            hungry, content = hungry + 1, content - account.slots
        return max(math.ceil(window / max(self.active, 1)), math.ceil((window - content) / hungry), 1)

    def note(self, holder: str, state: WorkerUsage) -> None:
        """Take what a worker says of itself."""
        account = self.accounts.get(holder)
        if account is None:
            account = self.accounts[holder] = WorkerLease(slots_lent=state.slot_loan, lent=state.loan)
        was_active = account.active
        self.busy += state.busy - account.busy
        account.busy, account.known = state.busy, state.loan
        account.used_tokens, account.used_usd = state.used_tokens, state.used_usd
        if state.slot_loan >= account.slots_lent:  # it knows all that it was lent
            self._hold(account, state.slots)
        if state.loan >= account.lent:
            account.held_tokens, account.held_usd = state.held_tokens, state.held_usd
        self.active += account.active - was_active

    def lend_slots(self, account: WorkerLease, slots: int) -> None:
        """Count slots as a worker's."""
        account.slots_lent += 1
        self._hold(account, account.slots + slots)

    def join(self, each: LeaseRequest) -> None:
        """Let a question wait."""
        self._queue(each.want).join(each)
        each.queued = True
        self._count_waiting(each.holder, 1)
        self._count_asking(each, 1)

    def drop(self, each: LeaseRequest) -> None:
        """A question has its answer, or is not asked any more."""
        self._queue(each.want).leave(each)
        if each.queued:
            each.queued = False
            self._count_asking(each, -1)

    def leave(self, each: LeaseRequest) -> None:
        """A worker has its answer, or waits for it no more."""
        self.drop(each)
        self._count_waiting(each.holder, -1)

    def close(self, holder: str) -> WorkerLease | None:
        """Take back what a worker held that is no more, and turn away what it asked; return its account."""
        account = self.accounts.pop(holder, None)
        if account is not None:
            self.slots -= account.slots
            self.busy -= account.busy
            self.active -= account.active
            if account.asks:
                self.hungry -= 1
                self.hungry_slots -= account.slots
        for queue in (self.for_slots, self.for_permits, self.for_money):
            for each in [each for each in queue if each.holder == holder]:
                queue.leave(each)
                each.queued = False
                if each.waits():
                    each.answer.cancel()
        return account

    def asked(self) -> list[LeaseRequest]:
        """Return who waits for permits or money, in order."""
        return list(merge(self.for_permits.in_turn(), self.for_money.in_turn(), key=_rank))

    def _queue(self, want: LeaseDemand) -> LeaseQueue:
        if want.slots:
            return self.for_slots
        return self.for_permits if want.first_requests or want.first_tokens else self.for_money

    def _count_waiting(self, holder: str, more: int) -> None:
        account = self.accounts.get(holder)
        if account is not None:
            was_active = account.active
            account.waits += more
            self.active += account.active - was_active

    def _count_asking(self, each: LeaseRequest, more: int) -> None:
        account = self.accounts.get(each.holder)
        if account is not None and each.want.slots:
            before = account.asks > 0
            account.asks += more
            change = (account.asks > 0) - before
            self.hungry += change
            self.hungry_slots += change * account.slots

    def _hold(self, account: WorkerLease, slots: int) -> None:
        more = slots - account.slots
        account.slots = slots
        self.slots += more
        self.hungry_slots += more if account.asks else 0
