"""Chat and embedding calls: let in or refused, answered or disturbed, delivered, counted."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from aiohttp import web

from hirag_dist.testing.simulator import faults, openai_schema
from hirag_dist.testing.simulator.answering import AnsweredPrompt, Answers
from hirag_dist.testing.simulator.call_log import LoggedCall
from hirag_dist.testing.simulator.fault_plan import (
    CHAT_FAULTS,
    DROP,
    EMBEDDING_FAULTS,
    FAIL,
    HANG,
    MALFORMED,
    STORM,
    TRUNCATE,
    FaultPlan,
    draw,
    plan_of,
)
from hirag_dist.testing.simulator.limits import LimitExceeded, SimulatedLimits, retry_headers
from hirag_dist.testing.simulator.openai_schema import ApiError
from hirag_dist.testing.simulator.options import SimulatorOptions
from hirag_dist.testing.simulator.responses import Payload, begin, gone, json_response, send
from hirag_dist.testing.simulator.stats import CallCounts, ReplyMemory, SeenRequests, digest

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"

_LOOK_S = 0.05  # how often a call that hangs looks whether its caller is still there


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """A reply that is ready: what is sent, what it cost, and the hashes of the texts it embeds."""

    payload: Payload
    input_tokens: int
    cached_tokens: int = 0
    output_tokens: int = 0
    texts: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingCall:
    """Request of a body: its origin, its tokens, the faults that it can get, and the function that makes its reply."""

    origin: bytes
    input_tokens: int
    kinds: frozenset[str]
    make: Callable[[FaultPlan], Awaitable[CompletedCall]]
    streams: bool = False


class CallHandlers:
    """The two paid paths of the API.

    Args:
        options: how calls go.
        answers: the model.

    Attributes:
        counts: by path.
        stopping: set when the endpoint stops; calls that hang end.
    """

    def __init__(self, options: SimulatorOptions, answers: Answers) -> None:
        self.counts = {CHAT: CallCounts(), EMBEDDINGS: CallCounts()}
        self.stopping = asyncio.Event()
        self._options = options
        self._answers = answers
        self._gate = SimulatedLimits(options, time.monotonic)
        self._storms = Storms(options, time.monotonic)
        self._memory = ReplyMemory()
        self._ids = itertools.count(1)

    async def take(self, request: web.Request, visit: LoggedCall) -> web.StreamResponse:
        """POST to one of the two paths: let a call in, have its reply made, deliver it, as far as its plan goes.

        Raises ApiError 400 for a body that cannot be answered.
        """
        counts = self.counts[visit.path]
        raw = await request.read()
        key = digest(raw)
        visit.request = key.hex()
        work = self._read(visit.path, key, raw)
        refused = self._refused(visit, counts, work.input_tokens)
        if refused is not None:
            return refused
        past = self._enter(visit, key)
        plan = plan_of(self._options, visit.request, past.attempts - 1, work.kinds, self._memory.faults(work.origin))
        made = None
        with self._let_in(visit, counts):
            self._give(plan.fault, work.origin, visit, counts)
            if plan.fault != FAIL and (plan.fault not in (HANG, DROP) or plan.midway):
                made = await work.make(plan)
                self._gate.charge(made.output_tokens)
            await self._wait(plan, visit.started)
            if plan.fault in (HANG, DROP):
                return await self._broken_off(request, plan, made)
        if made is None:
            return self._failed(visit, counts, plan)
        # a caller who went while the model worked is one whose reply was in flight
        if await gone(request):
            return self._abandoned(made, visit, past, counts)
        try:
            response = await send(request, made.payload, self._gate.headers())
        except ConnectionError:
            return self._abandoned(made, visit, past, counts)
        self._answered(made, visit, past, counts)
        return response

    def _read(self, path: str, key: bytes, raw: bytes) -> PendingCall:
        """Return the request of a body. Raises ApiError 400."""
        if path == EMBEDDINGS:
            asked = self._answers.embedding(key, raw)

            async def embed(plan: FaultPlan) -> CompletedCall:
                body = await self._answers.embed(key, asked)
                return CompletedCall(Payload((body,)), asked.input_tokens, texts=asked.texts)

            return PendingCall(key, asked.input_tokens, EMBEDDING_FAULTS, embed)
        prompt = self._answers.prompt(key, raw)

        async def complete(plan: FaultPlan) -> CompletedCall:
            return self._chat_reply(key, prompt, plan)

        # a foreign schema is a caller's probe of the endpoint's capabilities: it is asked once, and a damaged
        # reply would change how everything after it is asked
        kinds = CHAT_FAULTS if prompt.call.schema is None else CHAT_FAULTS - {MALFORMED, TRUNCATE}
        return PendingCall(prompt.origin, prompt.input_tokens, kinds, complete, prompt.call.stream)

    def _enter(self, visit: LoggedCall, key: bytes) -> SeenRequests:
        past = self._memory.past(key)
        visit.attempt = past.attempts
        past.attempts += 1
        return past

    def _refused(self, visit: LoggedCall, counts: CallCounts, tokens: int) -> web.Response | None:
        """Return the 429 that a call gets, or None when it is let in."""
        denied = self._storms.denies()
        if denied is not None:
            visit.fault = STORM
            counts.fault(STORM)
        else:
            denied = self._gate.enter(tokens)
        if denied is None:
            return None
        counts.rate_limited += 1
        visit.status = 429
        headers = self._gate.headers() | (retry_headers(denied) if self._options.limit_headers else {})
        error = ApiError(429, denied.message, "rate_limit_exceeded", kind=denied.kind)
        return json_response(error.body, 429, headers)

    @contextmanager
    def _let_in(self, visit: LoggedCall, counts: CallCounts) -> Iterator[None]:
        counts.in_flight += 1
        counts.most_in_flight = max(counts.most_in_flight, counts.in_flight)
        visit.in_flight = counts.in_flight
        try:
            yield
        finally:
            counts.in_flight -= 1
            self._gate.leave()

    def _chat_reply(self, key: bytes, prompt: AnsweredPrompt, plan: FaultPlan) -> CompletedCall:
        reply = self._answers.answer(key, prompt)
        if plan.fault == TRUNCATE:
            reply = self._answers.resized(faults.truncated(reply, plan.share))
        elif plan.fault == MALFORMED:
            reply = self._answers.resized(faults.damaged(reply, plan.form, plan.share))
        named = (f"chatcmpl-{self._options.seed}-{next(self._ids)}", int(time.time()))
        call = prompt.call
        if call.stream:
            payload = Payload(
                tuple(openai_schema.chat_events(call.model, reply, *named, call.stream_usage)), is_stream=True
            )
        else:
            payload = Payload((openai_schema.dump(openai_schema.chat_body(call.model, reply, *named)),))
        return CompletedCall(payload, reply.input_tokens, reply.cached_tokens, reply.output_tokens)

    async def _broken_off(
        self, request: web.Request, plan: FaultPlan, made: CompletedCall | None
    ) -> web.StreamResponse:
        """Say nothing or half of the reply; then hang up, or wait until the caller does."""
        response: web.StreamResponse = web.Response()
        if made is not None:
            try:
                response = await begin(request, made.payload, self._gate.headers())
            except ConnectionError:
                return response
        if plan.fault == HANG:
            while not await gone(request) and not self.stopping.is_set():
                # aiohttp tells a handler that the caller went only by cancelling it, which must not happen to others
                await within(self.stopping, _LOOK_S)
        if request.transport is not None:
            if made is not None:
                request.transport.close()  # after what was begun has got out
            else:
                request.transport.abort()
        return response

    def _failed(self, visit: LoggedCall, counts: CallCounts, plan: FaultPlan) -> web.Response:
        failed = faults.failure(plan.form, plan.share)
        status = failed.error.status
        counts.errors += 1
        visit.status = status
        headers = self._gate.headers()
        if failed.retry_after_s is not None and self._options.limit_headers:
            headers["Retry-After"] = str(failed.retry_after_s)
        if failed.page is not None:
            return web.Response(body=failed.page, status=status, headers=headers, content_type="text/html")
        return json_response(failed.error.body, status, headers)

    def _answered(self, made: CompletedCall, visit: LoggedCall, past: SeenRequests, counts: CallCounts) -> None:
        self._memory.answered(past, made.texts, counts, faulty=visit.fault is not None)
        counts.input_tokens += made.input_tokens
        counts.cached_tokens += made.cached_tokens
        counts.output_tokens += made.output_tokens
        visit.status = 200
        _bill(made, visit)

    def _abandoned(
        self, made: CompletedCall, visit: LoggedCall, past: SeenRequests, counts: CallCounts
    ) -> web.Response:
        self._memory.abandoned(past, made.texts, counts)
        counts.abandoned_tokens += made.input_tokens + made.output_tokens
        visit.abandoned = True
        _bill(made, visit)
        return web.Response()  # the caller has gone

    def _give(self, fault: str | None, origin: bytes, visit: LoggedCall, counts: CallCounts) -> None:
        if fault is not None:
            visit.fault = fault
            self._memory.fault(origin)
            counts.fault(fault)

    async def _wait(self, plan: FaultPlan, started: float) -> None:
        """Wait out the latency of a call; the model's own time counts as part of it."""
        left_s = plan.delay_s - (time.monotonic() - started)
        if left_s > 0:
            await asyncio.sleep(left_s)


def _bill(made: CompletedCall, visit: LoggedCall) -> None:
    visit.input_tokens, visit.output_tokens = made.input_tokens, made.output_tokens
    visit.cached_tokens = made.cached_tokens


async def within(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, or so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


_MAX_CALLS = 20
_MIN_S, _MAX_S = 0.3, 3.0
_CALLS_END_S = 5.0  # a storm of calls ends by itself, or a caller that backs off would wait for calls that never come
_SAID = "The server is overloaded: too many requests at this time. Please try again later."


@dataclass(slots=True)
class _Storm:
    calls_left: int | None  # None: it goes by time
    ends: float
    tells: bool


class Storms:
    """Draws storms by seed and the number of the call that would begin one.

    A storm lasts for 2 to 20 calls or for 0.3 to 3 seconds, and half of them say when to come back.

    Args:
        options: `storm_rate` is the chance of a call in fair weather to begin one; `seed`.
        clock: seconds, monotonic.
    """

    def __init__(self, options: SimulatorOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._storm: _Storm | None = None
        self._n_fair = 0

    def denies(self) -> LimitExceeded | None:
        """Return the refusal that a call gets now, or None."""
        if not self._options.storm_rate:
            return None
        now = self._clock()
        storm = self._storm
        if storm is None or now >= storm.ends or storm.calls_left == 0:
            storm = self._storm = self._begun(now)
            if storm is None:
                return None
        if storm.calls_left is not None:
            storm.calls_left -= 1
        wait_s = (storm.ends - now if storm.calls_left is None else 1.0) if storm.tells else None
        return LimitExceeded("requests", _SAID, wait_s)

    def _begun(self, now: float) -> _Storm | None:
        number = self._n_fair
        self._n_fair += 1

        def drawn(name: str) -> float:
            return draw(self._options.seed, "storm", number, name)

        if drawn("begins") >= self._options.storm_rate:
            return None
        tells, length = drawn("tells") < 0.5, drawn("length")
        if drawn("kind") < 0.5:
            return _Storm(2 + int(length * (_MAX_CALLS - 1)), now + _CALLS_END_S, tells)
        return _Storm(None, now + _MIN_S + length * (_MAX_S - _MIN_S), tells)
