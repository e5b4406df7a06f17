"""Chat and embedding calls: let in or refused, answered or disturbed, delivered, counted."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import web

from hirag_dist.testing.simulator import faults, openai_schema
from hirag_dist.testing.simulator.answering import AnsweredPrompt, Answers, digest
from hirag_dist.testing.simulator.faults import (
    CHAT_FAULTS,
    EMBEDDING_FAULTS,
    FAIL,
    HANG,
    MALFORMED,
    TRUNCATE,
    FaultPlan,
    plan_of,
)
from hirag_dist.testing.simulator.limits import LimitExceeded, SimulatedLimits, retry_headers
from hirag_dist.testing.simulator.openai_schema import ApiError
from hirag_dist.testing.simulator.options import SimulatorOptions

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"

_LOOK_S = 0.05  # how often a call that hangs looks whether its caller is still there


@dataclass(slots=True)
class CallCounts:
    """Counts of one kind of call.

    Attributes:
        calls: answered with 200.
        input_tokens: Prompt tokens of the answered calls.
        rate_limited: got a 429.
        errors: got another 4xx or a 5xx.
        abandoned: were done, and the caller had hung up; they are in no other count.
        repeats: Answered calls whose request had been answered before: paid twice.
        faults: how many were given, by kind.
        most_in_flight: the highest that in_flight was.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    rate_limited: int = 0
    errors: int = 0
    abandoned: int = 0
    repeats: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    faults: dict[str, int] = field(default_factory=dict)


def total(counts: Iterable[CallCounts]) -> dict[str, Any]:
    """Return the sums of all counts; of `most_in_flight` the largest."""
    every = [asdict(each) for each in counts]
    sums = {name: sum(each[name] for each in every) for name in every[0] if name != "faults"}
    sums["most_in_flight"] = max(each["most_in_flight"] for each in every)
    return sums | {"faults": dict(sum((Counter(each["faults"]) for each in every), Counter()))}


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """A reply that is ready: its body, or the server-sent events of a stream, and its tokens."""

    parts: tuple[bytes, ...]
    input_tokens: int
    output_tokens: int = 0
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class PendingCall:
    """Request of a body: its tokens, the faults that it can get, and the function that makes its reply."""

    input_tokens: int
    kinds: frozenset[str]
    make: Callable[[FaultPlan], Awaitable[CompletedCall]]


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
        self._attempts: Counter[bytes] = Counter()  # times that each request was let in
        self._answered: set[bytes] = set()
        self._ids = itertools.count(1)

    async def take(self, request: web.Request) -> web.StreamResponse:
        """POST to one of the two paths: let a call in, have its reply made, deliver it, as far as its plan goes.

        Raises ApiError 400 for a body that cannot be answered.
        """
        started = time.monotonic()
        counts = self.counts[request.path]
        raw = await request.read()
        key = digest(raw)
        work = self._read(request.path, raw)
        denied = self._gate.enter(work.input_tokens)
        if denied is not None:
            return self._refused(counts, denied)
        attempt = self._attempts[key]
        self._attempts[key] += 1
        plan = plan_of(self._options, key.hex(), attempt, work.kinds)
        made = None
        with self._let_in(counts):
            if plan.fault is not None:
                counts.faults[plan.fault] = counts.faults.get(plan.fault, 0) + 1
            if plan.fault not in (FAIL, HANG):
                made = await work.make(plan)
                self._gate.charge(made.output_tokens)
            await asyncio.sleep(max(plan.delay_s - (time.monotonic() - started), 0.0))  # the model's time is part of it
            if plan.fault == HANG:
                return await self._hang(request)
        if made is None:
            return self._failed(counts, plan)
        try:
            response = None if await gone(request) else await send(request, made, self._gate.headers())
        except ConnectionError:
            response = None
        if response is None:  # a caller who went while the model worked is one whose reply was in flight
            counts.abandoned += 1
            return web.Response()
        counts.calls += 1
        counts.repeats += key in self._answered
        self._answered.add(key)
        counts.input_tokens += made.input_tokens
        counts.output_tokens += made.output_tokens
        return response

    def _read(self, path: str, raw: bytes) -> PendingCall:
        """Return the request of a body. Raises ApiError 400."""
        if path == EMBEDDINGS:
            asked = self._answers.embedding(raw)

            async def embed(plan: FaultPlan) -> CompletedCall:
                return CompletedCall((await self._answers.embed(asked),), asked.input_tokens)

            return PendingCall(asked.input_tokens, EMBEDDING_FAULTS, embed)
        prompt = self._answers.prompt(raw)

        async def complete(plan: FaultPlan) -> CompletedCall:
            return self._chat_reply(prompt, plan)

        # a foreign schema is a caller's probe of the endpoint's capabilities: it is asked once, and a damaged
        # reply would change how everything after it is asked
        kinds = CHAT_FAULTS if prompt.call.schema is None else CHAT_FAULTS - {MALFORMED, TRUNCATE}
        return PendingCall(prompt.input_tokens, kinds, complete)

    def _refused(self, counts: CallCounts, denied: LimitExceeded) -> web.Response:
        counts.rate_limited += 1
        headers = self._gate.headers() | (retry_headers(denied) if self._options.limit_headers else {})
        error = ApiError(429, denied.message, "rate_limit_exceeded", kind=denied.kind)
        return json_response(error.body, 429, headers)

    @contextmanager
    def _let_in(self, counts: CallCounts) -> Iterator[None]:
        counts.in_flight += 1
        counts.most_in_flight = max(counts.most_in_flight, counts.in_flight)
        try:
            yield
        finally:
            counts.in_flight -= 1
            self._gate.leave()

    def _chat_reply(self, prompt: AnsweredPrompt, plan: FaultPlan) -> CompletedCall:
        reply = self._answers.answer(prompt)
        if plan.fault == TRUNCATE:
            reply = self._answers.resized(faults.truncated(reply, plan.share))
        elif plan.fault == MALFORMED:
            reply = self._answers.resized(faults.damaged(reply, plan.form, plan.share))
        named = (f"chatcmpl-{self._options.seed}-{next(self._ids)}", int(time.time()))
        call = prompt.call
        if call.stream:
            parts = tuple(openai_schema.chat_events(call.model, reply, *named, call.stream_usage))
        else:
            parts = (openai_schema.dump(openai_schema.chat_body(call.model, reply, *named)),)
        return CompletedCall(parts, reply.input_tokens, reply.output_tokens, call.stream)

    async def _hang(self, request: web.Request) -> web.StreamResponse:
        """Say nothing until the caller hangs up or the endpoint stops."""
        while not await gone(request) and not self.stopping.is_set():
            # aiohttp tells a handler that the caller went only by cancelling it, which must not happen to others
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self.stopping.wait()
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def _failed(self, counts: CallCounts, plan: FaultPlan) -> web.Response:
        failed = faults.failure(plan.form, plan.share)
        status = failed.error.status
        counts.errors += 1
        headers = self._gate.headers()
        if failed.retry_after_s is not None and self._options.limit_headers:
            headers["Retry-After"] = str(failed.retry_after_s)
        if failed.page is not None:
            return web.Response(body=failed.page, status=status, headers=headers, content_type="text/html")
        return json_response(failed.error.body, status, headers)


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a JSON response."""
    return web.Response(body=openai_schema.dump(body), status=status, headers=headers, content_type="application/json")


async def send(request: web.Request, reply: CompletedCall, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send a reply. Raises ConnectionError when the caller has gone."""
    if reply.is_stream:
        own = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        response = web.StreamResponse(headers={**own, **headers})
        await response.prepare(request)
        for part in reply.parts:
            await response.write(part)
    else:
        response = web.Response(body=reply.parts[0], headers=headers, content_type="application/json")
        await response.prepare(request)
    await response.write_eof()
    return response


async def gone(request: web.Request) -> bool:
    """Return whether the caller has closed the connection, as far as can be known now."""
    for _ in range(2):  # the loop first has to see the end of the connection, then to act on it
        await asyncio.sleep(0)
    return request.transport is None or request.transport.is_closing()
