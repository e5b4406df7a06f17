"""The gate of all requests: authentication, load shedding, quotas, conversion of errors, one record each.

A request whose expected wait in the queue is too long is rejected at once, so that an overloaded service keeps
answering the requests that it accepts in a short time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import HiragError, InvalidQuery
from hirag_dist.service.access_log import Context, RequestRecord
from hirag_dist.service.callers import Authenticator, Caller
from hirag_dist.wire._pb import query_pb2
from hirag_dist.wire.error_status import (
    REQUEST_ID_KEY,
    AccessRefused,
    DeadlinePassed,
    Overloaded,
    QuotaExceeded,
    message_of,
    status_of,
    trailers_of,
)

logger = logging.getLogger(__name__)

_SMOOTHING = 0.1  # weight of the newest retrieval in the mean duration


class LoadShedder:
    """The retrieval slots of one process and the queue for them.

    A retrieval computes in one thread, so more at a time make nothing faster: a few hold slots, the others wait in
    the order in which they arrived. A request that would wait too long is rejected at once, while trying elsewhere or
    later still helps.

    Args:
        max_retrievals: slots, that is retrievals at a time.
        max_queue_wait_s: longest expected wait of an accepted request once the queue is longer than `short_queue`.
        max_requests: requests of any kind in the process, including those being sent.
        max_answers: requests at a time that wait for a model to answer; they hold no slot meanwhile.
        short_queue: length of a queue that is accepted whatever its expected wait: the expectation is an estimate, and
            the first retrievals of a snapshot are slow.
    """

    def __init__(
        self,
        *,
        max_retrievals: int,
        max_queue_wait_s: float,
        max_requests: int,
        max_answers: int,
        short_queue: int = 16,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_retrievals = max_retrievals
        self._slots = asyncio.Semaphore(max_retrievals)
        self._max_queue_wait_s = max_queue_wait_s
        self._max_requests = max_requests
        self._short_queue = short_queue
        self._max_answers = max_answers
        self._clock = clock
        self._mean_s = 0.0  # exponential moving average of the time for which a slot is held
        self._running: dict[float, int] = {}  # start time of the running retrievals, oldest first → their number
        self.present = 0
        self.waiting = 0
        self.retrieving = 0
        self.answering = 0

    @property
    def expected_wait_s(self) -> float:
        """Expected wait of the next request, from the queue's length and the durations of retrievals."""
        if self.retrieving < self._max_retrievals:
            return 0.0
        now = self._clock()  # a retrieval that already runs longer than the mean counts with its own duration
        durations = [(max(self._mean_s, now - started), count) for started, count in self._running.items()]
        if not all(duration for duration, _ in durations):
            return 0.0  # no duration is known yet
        return (self.waiting + 1) / sum(count / duration for duration, count in durations)

    def check(self, remaining_s: float | None) -> None:
        """Reject a retrieval that would wait too long if it arrived now.

        Args:
            remaining_s: until its deadline; None without a deadline.

        Raises:
            DeadlinePassed: nothing remains.
            Overloaded: the expected wait is too long, for the service or for the deadline.
        """
        if remaining_s is not None and remaining_s <= 0:
            raise DeadlinePassed("the deadline had passed when the request arrived; allow more time")
        wait_s = float(f"{self.expected_wait_s:.2g}")  # an estimate; few distinct values make few distinct statuses
        if wait_s > self._max_queue_wait_s and self.waiting >= self._short_queue:
            raise Overloaded(
                f"{count_noun(self.waiting, 'request is', 'requests are')} waiting, and the expected wait is "
                f"{wait_s:.2g} s; ask again later",
                "queue",
                retry_after_s=wait_s,
            )
        if remaining_s is not None and wait_s >= remaining_s:
            raise Overloaded(
                f"the request would wait {wait_s:.2g} s, and its deadline is in {remaining_s:.2g} s; "
                f"ask again later or allow more time",
                "deadline",
                retry_after_s=wait_s,
            )

    @contextmanager
    def counted(self, *, answer: bool = False) -> Iterator[None]:
        """Count a request for as long as the block lasts.

        Raises:
            Overloaded: the process has as many requests, or answers, as it accepts.
        """
        if self.present >= self._max_requests:
            raise Overloaded(
                f"the process has {count_noun(self.present, 'request')}, as many as it accepts; ask again in a moment",
                "full",
            )
        if answer and self.answering >= self._max_answers:
            raise Overloaded(
                f"{count_noun(self.answering, 'answer is', 'answers are')} being written, as many as the process "
                "accepts; ask again in a moment",
                "answers",
            )
        self.present += 1
        self.answering += answer
        try:
            yield
        finally:
            self.present -= 1
            self.answering -= answer

    @asynccontextmanager
    async def slot(self, remaining_s: Callable[[], float | None]) -> AsyncIterator[float]:
        """Wait for a slot and hold it for as long as the block lasts. Yield the seconds of the wait.

        Raises:
            DeadlinePassed: the deadline passed during the wait; nothing was started.
        """
        arrived = self._clock()
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        started = self._clock()
        self.retrieving += 1
        try:
            left_s = remaining_s()
            if left_s is not None and left_s <= 0:
                raise DeadlinePassed("the deadline passed while the request was waiting; allow more time")
            self._running[started] = self._running.get(started, 0) + 1
            try:
                yield started - arrived
            finally:  # a cancelled or failed retrieval counts too: it held the slot as well
                duration_s = self._clock() - started
                self._mean_s += (duration_s - self._mean_s) * (_SMOOTHING if self._mean_s else 1.0)
                self._running[started] -= 1
                if not self._running[started]:
                    del self._running[started]
        finally:
            self.retrieving -= 1
            self._slots.release()


SERVICE = query_pb2.DESCRIPTOR.services_by_name["QueryService"]
SERVICE_NAME: str = SERVICE.full_name


def service_handler(servicer: Any) -> grpc.GenericRpcHandler:
    """Return the handler of all methods.

    If gRPC parsed the requests, it would do so before authentication, and one that is no message would end in UNKNOWN
    with a traceback in the log.

    Args:
        servicer: has a method for each RPC, with the same name, that takes a request and replies, both as bytes.
    """
    handlers = {}
    for method in SERVICE.methods:
        make: Any = (
            grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        )
        handlers[method.name] = make(getattr(servicer, method.name))
    return grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)


def read_request(method: str, raw: bytes) -> Any:
    """Return the message of a method's request. Raises InvalidQuery where the bytes are none."""
    try:
        return GetMessageClass(SERVICE.methods_by_name[method].input_type).FromString(raw)
    except DecodeError:
        raise InvalidQuery(f"the bytes are no {method}Request; make one with code generated from query.proto") from None


DAY_S = 86_400

_RETRY_AFTER_S = 0.25  # until one of a caller's requests in progress may have ended


@dataclass(slots=True)
class _Use:
    """Use of a caller's limits.

    Attributes:
        tokens: tokens in the bucket of the rate limit, None before the first request.
        refilled_at: time at which the bucket had them.
        day: days since 1970.
    """

    tokens: float | None = None
    refilled_at: float = 0.0
    day: int = 0
    requests: int = 0
    in_progress: int = 0


class CallerQuotas:
    """The quotas of all callers of one process. For use in one event loop.

    Args:
        clock: monotonic seconds.
        now: seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._now = now
        self._uses: dict[str, _Use] = {}

    @contextmanager
    def admitted(self, caller: Caller) -> Iterator[None]:
        """Count one request of a caller while the block lasts.

        Raises:
            QuotaExceeded: the caller has used its quota; with the time of a retry.
        """
        if caller.per_second is None and caller.per_day is None and caller.max_concurrent is None:
            yield
            return
        use = self._uses.setdefault(caller.name, _Use())
        self._take(caller, use)
        use.in_progress += 1
        try:
            yield
        finally:
            use.in_progress -= 1

    def _take(self, caller: Caller, use: _Use) -> None:
        """Count a request against a caller's limits, or raise if one of them is used up."""
        clock, now = self._clock(), self._now()
        today = int(now // DAY_S)
        if today == use.day - 1:
            today = use.day  # a clock set back over midnight grants no second quota
        requests = use.requests if today == use.day else 0
        if caller.max_concurrent is not None and use.in_progress >= caller.max_concurrent:
            raise QuotaExceeded(
                f"caller {caller.name} has {count_noun(use.in_progress, 'request')} in progress, as many as it may; "
                "wait for one to end",
                "concurrent",
                caller.name,
                _RETRY_AFTER_S,
            )
        if caller.per_day is not None and requests >= caller.per_day:
            wait_s = (today + 1) * DAY_S - now
            raise QuotaExceeded(
                f"caller {caller.name} has used its {count_noun(caller.per_day, 'request')} of today; the day ends at "
                f"midnight UTC, in {wait_s / 3600:.1f} h",
                "quota",
                caller.name,
                wait_s,
            )
        if caller.per_second is not None and caller.burst is not None:
            tokens = caller.burst
            if use.tokens is not None:
                tokens = min(caller.burst, use.tokens + (clock - use.refilled_at) * caller.per_second)
            if tokens < 1:
                wait_s = (1 - tokens) / caller.per_second
                raise QuotaExceeded(
                    f"caller {caller.name} sends more than {caller.per_second:g} requests per second; "
                    f"wait {wait_s:.2g} s",
                    "rate",
                    caller.name,
                    wait_s,
                )
            use.tokens, use.refilled_at = tokens - 1, clock
        use.day, use.requests = today, requests + 1


_REJECTION_DELAY_S = 0.1
_MAX_DELAYED = 1000  # rejections at a time that are delayed


class RequestGate:
    """Admits requests, converts the errors of their work to a status, and calls the observers.

    Args:
        shedder: bounds concurrency and rejects requests under overload.
        observers: called with the record of each request when it has ended.
        check_ready: raises NotReady before there is anything to serve.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        shedder: LoadShedder,
        quotas: CallerQuotas,
        observers: Sequence[Callable[[RequestRecord], None]],
        check_ready: Callable[[], None],
    ) -> None:
        self._authenticator = authenticator
        self._shedder = shedder
        self._quotas = quotas
        self._observers = observers
        self._check_ready = check_ready
        self._delayed = 0

    @asynccontextmanager
    async def admitted(
        self, method: str, request: bytes, context: Context, *, retrieves: bool = True, answer: bool = False
    ) -> AsyncIterator[tuple[Any, Caller, RequestRecord]]:
        """Admit a request for as long as the block lasts. Yield its message, its caller and its record.

        Args:
            request: its message, not parsed yet.
            retrieves: whether the request is counted and shed as a retrieval.
            answer: whether it waits for a model too.
        """
        record = RequestRecord.of(method, context)
        try:
            caller, record.kind = self._authenticator.caller(context)
            record.caller, record.labels = caller.name, "all" if caller.reach is None else len(caller.reach)
            if retrieves:  # before the quota: a request that is shed is not counted against it
                self._shedder.check(context.time_remaining())
            message = read_request(method, request)
            with self._shedder.counted(answer=answer) if retrieves else nullcontext():
                self._check_ready()
                with self._quotas.admitted(caller):
                    context.set_trailing_metadata(((REQUEST_ID_KEY, record.request_id),))
                    yield message, caller, record
        except asyncio.CancelledError:
            record.code = _cancellation_code(context)
            self._finish(record)
            raise
        except Exception as error:
            if context.cancelled():  # a write after the client disconnected
                record.code = _cancellation_code(context)
                self._finish(record)
                raise asyncio.CancelledError from error
            public = _public_error(error, record)
            if isinstance(public, AccessRefused):
                record.reason, record.caller = public.reason, public.caller or record.caller
            record.code = status_of(public).name
            self._finish(record)
            if isinstance(public, AccessRefused):
                await self._delay_rejection(context)
            trailers = trailers_of(public, record.request_id, context.time_remaining())
            # The status is sent after the data that a slow client has not read, at worst when its connection ends. No
            # slot, lease or quota is held meanwhile.
            await context.abort(status_of(public), message_of(public), trailers)
        else:
            self._finish(record)

    def _finish(self, record: RequestRecord) -> None:
        record.seconds = record.elapsed_s
        for observer in self._observers:
            observer(record)

    async def _delay_rejection(self, context: Context) -> None:
        """Wait before a rejection, so that a client that retries at once in a loop does not use up the process."""
        left_s = context.time_remaining()
        if self._delayed < _MAX_DELAYED:
            self._delayed += 1
            try:
                await asyncio.sleep(_REJECTION_DELAY_S if left_s is None else min(_REJECTION_DELAY_S, left_s / 2))
            finally:
                self._delayed -= 1


def _public_error(error: Exception, record: RequestRecord) -> HiragError:
    """Return the error that the caller gets; the details of an unexpected one are only logged."""
    if isinstance(error, HiragError):
        return error
    if isinstance(error, TimeoutError):
        return DeadlinePassed("the deadline passed before the request was done; allow more time")
    ids = {"request_id": record.request_id} | ({"trace_id": record.trace_id} if record.trace_id else {})
    logger.error("a request failed", exc_info=error, extra={"fields": ids})
    return HiragError(f"internal error; the service's log has details under request id {record.request_id}")


def _cancellation_code(context: Context) -> str:
    """Return the status of a cancelled call: cancelled by the caller, or by its deadline."""
    remaining = context.time_remaining()
    return "CANCELLED" if remaining is None or remaining > 0 else "DEADLINE_EXCEEDED"
