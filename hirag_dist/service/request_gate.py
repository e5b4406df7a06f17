"""The gate of all requests: authentication, load shedding, quotas, conversion of errors, one record each."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from hirag_dist.errors import HiragError
from hirag_dist.service.access_log import Context, RequestRecord
from hirag_dist.service.auth.authentication import Authenticator
from hirag_dist.service.auth.caller_registry import Caller
from hirag_dist.service.caller_quotas import CallerQuotas
from hirag_dist.service.grpc_handlers import read_request
from hirag_dist.service.load_shedding import LoadShedder
from hirag_dist.wire.error_status import (
    REQUEST_ID_KEY,
    AccessRefused,
    DeadlinePassed,
    message_of,
    status_of,
    trailers_of,
)

logger = logging.getLogger(__name__)
_REJECTION_DELAY_S = 0.1
_RELEASE_INTERVAL_S = 0.02  # of delayed rejections
_MAX_DELAYED = 1000  # rejections at a time that are delayed


@dataclass(slots=True)
class AdmittedRequest:
    """A request that passed the gate.

    Attributes:
        message: the request.
        caller: the authenticated caller.
        record: filled while the request is served.
    """

    message: Any
    caller: Caller
    record: RequestRecord


class RequestGate:
    """Admits requests, converts the errors of their work to a status, and calls the observers.

    Args:
        authenticator: identifies callers.
        shedder: bounds concurrency and rejects requests under overload.
        quotas: limits of callers.
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
        self._releases: dict[int, asyncio.Event] = {}  # number of the interval → event at its end

    @asynccontextmanager
    async def admitted(
        self, method: str, request: bytes, context: Context, *, retrieves: bool = True, answer: bool = False
    ) -> AsyncIterator[AdmittedRequest]:
        """Admit a request for as long as the block lasts.

        Args:
            method: name of the RPC.
            request: its message, not parsed yet.
            context: of the call.
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
                    yield AdmittedRequest(message, caller, record)
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
                if left_s is None or left_s > 2 * _REJECTION_DELAY_S:
                    await self._next_release().wait()
                else:
                    await asyncio.sleep(left_s / 2)
            finally:
                self._delayed -= 1

    def _next_release(self) -> asyncio.Event:
        """Return the event at which the rejections of the current interval are released, together.

        One timer for all of them: a turn of the event loop for each would take longer than the rejection itself.
        """
        loop = asyncio.get_running_loop()
        due = math.ceil((loop.time() + _REJECTION_DELAY_S) / _RELEASE_INTERVAL_S)
        event = self._releases.get(due)
        if event is None:
            event = self._releases[due] = asyncio.Event()
            loop.call_at(due * _RELEASE_INTERVAL_S, self._release, due)
        return event

    def _release(self, due: int) -> None:
        self._releases.pop(due).set()


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
