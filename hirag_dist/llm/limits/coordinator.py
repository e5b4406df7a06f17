"""The one place that holds a run's allowances and money, and lends them to workers in blocks.

A worker (`llm.limits.client.Budget`) holds slots, requests, tokens and money that it was lent, and starts and ends
calls on its own; it comes back for more, and reports, a few dozen times a second at most, whatever the number of calls,
and less often where there are many workers. So the limits are exact (what is lent adds up to what is allowed), and the
place that holds them is not the bottleneck.

What a worker says of itself is its whole state, never a change of it, so that a report lost or delivered twice does no
harm; a state from before the latest loan is known by its number and not believed where it would free something. The
answer to a question must arrive: a worker that did not get one ends its calls with an error.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping

from hirag_dist.errors import BudgetReached
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.leases import EndpointLeases, LeaseRequest
from hirag_dist.llm.limits.protocol import Lease, LeaseAdjustment, LeaseDemand, UsageReport, WorkerUsage

logger = logging.getLogger(__name__)
_BLOCK_S = 0.02  # of an endpoint's rate in one loan
_LOAN_S = 0.25  # after that a loan that was not used goes back
_LONG_PAUSE_S = 10.0
_PATIENT_S, _SAY_AGAIN_S = 15.0, 60.0  # an endpoint that does nothing but refuse is complained of after; then again
_QUOTA = "check its quota, or name `rpm`, `tpm` or `max_concurrent` lower where others use it too"
_UNPACED = 256  # requests in a loan where there is no rate
_REPORTS_A_S = 200.0  # of calls that go on, by all workers together: the actor takes some thousand messages a second
GO_ON = "raise it and run again to go on from here"  # what to do at a spending limit where replies are kept


def out_of_usd(max_usd: float, spent: float, next_call: float, advice: str = GO_ON) -> BudgetReached:
    """Return the error where a call could pass --max-usd."""
    return BudgetReached(
        f"stopped before --max-usd {max_usd:g} was passed (${spent:.4f} spent or set aside by this run, the next call "
        f"may cost ${next_call:.4f}); {advice}"
    )


def out_of_tokens(max_tokens: int, spent: int, next_call: int, advice: str = GO_ON) -> BudgetReached:
    """Return the error where a call could pass --max-tokens."""
    return BudgetReached(
        f"stopped before --max-tokens {max_tokens} was passed ({spent} used or set aside by this run, the next call "
        f"may use {next_call}); {advice}"
    )


class QuotaCoordinator:
    """Lends what endpoints allow and what the run may spend. Serves one event loop."""

    def __init__(
        self,
        allowances: Mapping[str, EndpointLimits],
        max_usd: float | None = None,
        max_tokens: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        advice: str = GO_ON,
    ) -> None:
        """Open the books.

        Args:
            advice: what to do at a spending limit, as its error says it.
        """
        self._books = {name: EndpointLeases(name, allowance) for name, allowance in allowances.items()}
        self._max_usd, self._max_tokens = max_usd, max_tokens
        self._gone_tokens, self._gone_usd = 0, 0.0  # used by workers that are no more, or without a loan
        self._clock = clock
        self._advice = advice
        self._n_asked = 0

    async def ask(
        self, holder: str, endpoint: str, state: WorkerUsage, want: LeaseDemand, events: UsageReport
    ) -> Lease:
        """Wait for this worker's turn, and lend it what it wants of what there is, at least what its first call needs.

        Raises:
            BudgetReached: its first call could pass a spending limit, and nothing is in flight that may leave room.
        """
        books = self._books[endpoint]
        self._note(books, holder, state, events)
        self._n_asked += 1
        answer: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        entry = LeaseRequest(holder, want, self._n_asked, answer)
        books.join(entry)
        try:
            self._serve_all()
            return await answer
        finally:
            books.leave(entry)

    async def tell(self, holder: str, endpoint: str, state: WorkerUsage, events: UsageReport) -> LeaseAdjustment:
        """Take a worker's report."""
        books = self._books[endpoint]
        self._note(books, holder, state, events)
        self._serve_all()
        account = books.accounts[holder]
        others_wait = books.hungry > (account.asks > 0)
        too_many = books.free_slots() < 0  # the window has become smaller than what was lent
        most = books.share(account) if others_wait or too_many else int(books.allowance.window)
        return LeaseAdjustment(most, books.allowance.pause_s(self._clock()), books.active / _REPORTS_A_S)

    async def leave(self, holder: str) -> None:
        """Take back what a worker held that is no more; what it may have spent counts as spent."""
        for books in self._books.values():
            account = books.close(holder)
            if account is not None:
                self._gone_tokens += account.used_tokens + account.held_tokens
                self._gone_usd += account.used_usd + account.held_usd
        self._serve_all()

    def charge(self, tokens: int, usd: float) -> None:
        """Count what was spent without a loan."""
        self._gone_tokens += tokens
        self._gone_usd += usd

    def spent(self) -> tuple[int, float]:
        """Return (tokens, US dollars) used or reserved."""
        accounts = [account for books in self._books.values() for account in books.accounts.values()]
        return (
            self._gone_tokens + sum(each.used_tokens + each.held_tokens for each in accounts),
            self._gone_usd + math.fsum(each.used_usd + each.held_usd for each in accounts),
        )

    def _note(self, books: EndpointLeases, holder: str, state: WorkerUsage, events: UsageReport) -> None:
        books.note(holder, state)
        now = self._clock()
        allowance = books.allowance
        others = books.busy - state.busy
        before = allowance.limits()
        allowance.on_rate_limits(now, events.requests_a_minute, events.tokens_a_minute)
        if events.unused_requests or events.unused_tokens or events.token_error:
            allowance.take(now, -events.unused_requests, events.token_error - events.unused_tokens)
        if events.answered:
            allowance.answered(
                now, events.answered, events.answered_tokens, events.latency_s, others + events.most_busy
            )
        for retry_after_s, kind, in_flight in events.limited:
            allowance.limited(now, retry_after_s, kind, in_flight + others)
        for _ in range(events.slow):
            allowance.slow(now)
        self._tell_of(books, before)
        self._tell_of_refusals(books, events)

    def _tell_of(self, books: EndpointLeases, before: tuple[float | None, float | None]) -> None:
        """Log what was learned of an endpoint, and pauses that somebody may wonder at."""
        after = books.allowance.limits()
        for what, was, now in zip(("requests", "tokens"), before, after, strict=True):
            if now is not None and (was is None or abs(now - was) > 0.2 * was):
                logger.info("endpoint %s: at most %.0f %s a minute", books.name, now * 60, what)
        pause_s = books.allowance.pause_s(self._clock())
        if pause_s > _LONG_PAUSE_S and self._clock() > books.told_until:
            books.told_until = self._clock() + pause_s
            text = "endpoint %s asks to be left alone for %.0f s (429); waiting: %s"
            logger.warning(text, books.name, pause_s, _QUOTA)

    def _tell_of_refusals(self, books: EndpointLeases, events: UsageReport) -> None:
        """Log now and then that an endpoint answers nothing but 429: nothing fails, and the run seems to hang."""
        now = self._clock()
        if events.answered:
            if books.refusals and books.complain_at > books.refused_since + _PATIENT_S:
                logger.warning("endpoint %s answers again", books.name)
            books.refusals, books.complain_at = 0, math.inf
            return
        if not events.limited:
            return
        if not books.refusals:
            books.refused_since, books.complain_at = now, now + _PATIENT_S
        books.refusals += len(events.limited)
        if now >= books.complain_at:
            books.complain_at = now + _SAY_AGAIN_S
            logger.warning(
                "endpoint %s has answered nothing but 429 for %.0f s (%d times); "
                "going on until `llm.outage_timeout_s`: %s",
                books.name,
                now - books.refused_since,
                books.refusals,
                _QUOTA,
            )

    def _serve_all(self) -> None:
        """Serve every endpoint: money that one gave back may be what another waits for."""
        for books in self._books.values():
            self._serve(books)

    def _serve(self, books: EndpointLeases) -> None:
        if books.timer is not None:
            books.timer.cancel()
            books.timer = None
        while self._lend_slots(books) or self._lend_permits(books):
            pass  # what one got may change what another may have
        if books.for_permits or books.for_money:
            wait_s = self._next_s(books)
            if wait_s > 0:
                loop = asyncio.get_running_loop()
                books.timer = loop.call_later(min(max(wait_s, 0.001), 60.0), self._serve, books)

    def _next_s(self, books: EndpointLeases) -> float:
        """Return how long until the pace lets somebody have a loan; 0 where it is not the pace that is waited for."""
        now = self._clock()
        if self._limited():  # the first may wait for money, and those behind it for the pace
            wants = [each.want for each in books.for_permits]
        else:
            head = books.for_permits.head()
            wants = [head.want] if head else []
        waits = [self._wait_s(books, want, now) for want in wants or [LeaseDemand(0)]]
        return min((wait_s for wait_s in waits if wait_s > 0), default=0.0)

    def _limited(self) -> bool:
        """Whether the run has a spending limit."""
        return self._max_usd is not None or self._max_tokens is not None

    def _lend_slots(self, books: EndpointLeases) -> bool:
        """Lend the slots that are free, to each its share; return whether anybody waits no more."""
        changed = False
        for entry in list(books.for_slots) if books.free_slots() > 0 else ():
            if not entry.waits():  # whoever is gone has no share
                books.drop(entry)
                changed = True
                continue
            account = books.accounts[entry.holder]
            slots = min(entry.want.slots, books.free_slots(), books.share(account) - account.slots)
            if slots > 0:
                books.lend_slots(account, slots)
                books.drop(entry)
                entry.answer.set_result(Lease(account.slots_lent, account.slots, 0, 0, 0, 0.0, _LOAN_S))
                changed = True
            if books.free_slots() <= 0:
                break
        return changed

    def _lend_permits(self, books: EndpointLeases) -> bool:
        """Lend requests, tokens and money; return whether anybody got an answer."""
        return self._lend_within_limits(books) if self._limited() else self._lend_in_turn(books)

    def _lend_in_turn(self, books: EndpointLeases) -> bool:
        """Lend where the run has no spending limit: whoever needs the pace waits behind the first who does."""
        served = False
        for entry in books.for_money.in_turn():
            self._lend(books, entry, self._money(entry.want, 0, 0.0))
            served = True
        while (head := books.for_permits.head()) and self._wait_s(books, head.want, self._clock()) <= 0:
            self._lend(books, head, self._money(head.want, 0, 0.0))
            served = True
        return served

    def _lend_within_limits(self, books: EndpointLeases) -> bool:
        """Lend where the run has a spending limit: money could be what one cannot have, whatever the pace."""
        served = False
        if not books.for_permits and not books.for_money:
            return served
        tokens, usd = self.spent()
        now = self._clock()
        closed = False
        for entry in books.asked():
            want = entry.want
            broke = self._too_dear(want, tokens, usd)
            if broke is not None:
                if self._nothing_in_flight():
                    books.drop(entry)
                    entry.answer.set_exception(broke)
                    served = True
                continue
            paced = want.first_requests > 0 or want.first_tokens > 0
            closed = closed or (paced and self._wait_s(books, want, now) > 0)
            if closed and paced:
                continue
            money = self._money(want, tokens, usd)
            tokens, usd = tokens + money[0], usd + money[1]
            self._lend(books, entry, money)
            served = True
        return served

    def _lend(self, books: EndpointLeases, entry: LeaseRequest, money: tuple[int, float]) -> None:
        """Answer a question with a block of the pace, where it is asked for, and money.

        Where more has been saved up it is an equal share of that: a rate is kept also by few workers whose questions
        take longer than a block lasts.
        """
        want, now = entry.want, self._clock()
        block = (0, 0)
        if want.first_requests or want.first_tokens:
            block = self._block(books, want)
            share = [max(room, 0.0) / max(len(books.for_permits), 1) for room in books.allowance.room(now)]
            block = max(block[0], int(min(want.requests, share[0]))), max(block[1], int(min(want.tokens, share[1])))
        books.allowance.take(now, *block)
        account = books.accounts[entry.holder]
        account.lent += 1
        account.held_tokens += money[0]
        account.held_usd += money[1]
        books.drop(entry)
        entry.answer.set_result(Lease(account.lent, account.slots, *block, *money, self._valid_s(books)))

    def _valid_s(self, books: EndpointLeases) -> float:
        """Return for how long a loan holds: what no rate is lent from need not go back before the next report."""
        paced = any(rate is not None for rate in books.allowance.limits())
        return _LOAN_S if paced else max(_LOAN_S, books.active / _REPORTS_A_S)

    def _block(self, books: EndpointLeases, want: LeaseDemand) -> tuple[int, int]:
        """Return the requests and tokens of a loan: some milliseconds of the endpoint's rate."""
        per_s_requests, per_s_tokens = books.allowance.limits()
        requests = tokens = 0
        if want.requests:
            block = max(want.requests, _UNPACED) if per_s_requests is None else int(per_s_requests * _BLOCK_S)
            requests = max(block if per_s_requests is None else min(want.requests, block), want.first_requests)
        if want.tokens:
            block = want.tokens if per_s_tokens is None else int(per_s_tokens * _BLOCK_S)
            tokens = max(min(want.tokens, block), want.first_tokens)
        return requests, tokens

    def _wait_s(self, books: EndpointLeases, want: LeaseDemand, now: float) -> float:
        """Return how long until there is a whole block to lend; a call that is larger than one begins it.

        Lent as they come, requests would go out one by one where many wait: as many questions as calls.
        """
        requests, tokens = self._block(books, want)
        return books.allowance.wait_s(now, tokens if tokens > want.first_tokens else 1.0, max(requests, 1))

    def _money(self, want: LeaseDemand, tokens: int, usd: float) -> tuple[int, float]:
        """Return what of the spending limits is lent where so much is spent: for all that could start, or the first."""
        left_tokens = math.inf if self._max_tokens is None else self._max_tokens - tokens
        left_usd = math.inf if self._max_usd is None else self._max_usd - usd
        if want.spend_tokens <= left_tokens and want.spend_usd <= left_usd:
            return want.spend_tokens, want.spend_usd
        return want.first_spend_tokens, want.first_spend_usd

    def _too_dear(self, want: LeaseDemand, tokens: int, usd: float) -> BudgetReached | None:
        if self._max_usd is not None and usd + want.first_spend_usd > self._max_usd:
            return out_of_usd(self._max_usd, usd, want.first_spend_usd, self._advice)
        if self._max_tokens is not None and tokens + want.first_spend_tokens > self._max_tokens:
            return out_of_tokens(self._max_tokens, tokens, want.first_spend_tokens, self._advice)
        return None

    def _nothing_in_flight(self) -> bool:
        """Whether no call could still turn out cheaper than reserved."""
        accounts = [account for books in self._books.values() for account in books.accounts.values()]
        return not any(account.busy or account.known < account.lent for account in accounts)
