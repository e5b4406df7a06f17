"""Access log: one record per request, for the metrics, and its log line and OpenTelemetry spans."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc

from hirag_dist._version import __version__
from hirag_dist.wire.error_status import REQUEST_ID_KEY

_SERVICE = "hirag.query.v1.QueryService"
_PARTS = ("embed", "search", "communities", "bridge", "sources", "render")  # in the order in which they are done
_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})


class Tracing:
    """Exporter of a span per request, with child spans for the parts of its retrieval and for its answer.

    A request of an authenticated caller with a `traceparent` header (W3C) continues that trace. Of the parts only the
    durations are known; their spans follow each other from the end of the wait in the queue.
    """

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace = trace
        self._provider = provider
        self._tracer = provider.get_tracer("hirag_dist", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def export(self, record: RequestRecord) -> None:
        """Make the spans of a finished request, and set its `trace_id`."""
        known = record.kind != "unknown"  # an unknown caller must not decide that a trace is kept
        parent = self._propagator.extract(record.trace) if record.trace and known else None
        begin = record.began_ns
        end = begin + int(record.seconds * 1e9)
        span = self._tracer.start_span(
            f"{_SERVICE}/{record.method}", parent, kind=self._trace.SpanKind.SERVER, start_time=begin
        )
        if span.is_recording():
            record.trace_id = self._trace.format_trace_id(span.get_span_context().trace_id)
            self._describe(span, record)
            inside = self._trace.set_span_in_context(span)
            at = self._part(inside, "queue", begin, record.queued_s * 1e9) if record.queued_s else begin
            for name in _PARTS:
                if name in record.timings_ms:
                    at = self._part(inside, name, at, record.timings_ms[name] * 1e6)
            if record.model:
                attributes = {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.response.model": record.model,
                    "gen_ai.usage.input_tokens": record.input_tokens,
                    "gen_ai.usage.output_tokens": record.output_tokens,
                }
                answer = self._tracer.start_span("answer", inside, start_time=at, attributes=attributes)
                answer.end(end)
        span.end(end)

    def close(self) -> None:
        """Send the pending spans. Blocks until they are sent."""
        self._provider.shutdown()

    def _describe(self, span: Any, record: RequestRecord) -> None:
        span.set_attributes(
            _known(
                {
                    "rpc.system": "grpc",
                    "rpc.service": _SERVICE,
                    "rpc.method": record.method,
                    "hirag.request_id": record.request_id,
                    "hirag.caller": record.caller,
                    "hirag.mode": record.mode,
                    "hirag.snapshot": record.snapshot,
                    "hirag.items": record.items,
                    "hirag.partial": ",".join(record.partial),
                    "hirag.refused": record.reason,
                    "rpc.grpc.status": record.code,
                }
            )
        )
        if record.code in _FAULTS:
            span.set_status(self._trace.StatusCode.ERROR, record.code)

    def _part(self, inside: Any, name: str, begin: int, took_ns: float) -> int:
        span = self._tracer.start_span(name, inside, start_time=begin)
        end = begin + int(took_ns)
        span.end(end)
        return end


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in ("", None)}


Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

SHED_REASONS = frozenset({"queue", "deadline", "full", "answers"})  # of rejections by load shedding

logger = logging.getLogger(__name__)
_MAX_REJECTIONS_PER_S = 10  # in the log
_HEADERS = frozenset({REQUEST_ID_KEY, "traceparent", "tracestate"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(slots=True)
class RequestRecord:
    """Facts of a request; complete when it has ended.

    Attributes:
        method, peer, request_id: of the call.
        caller: name, empty for an anonymous one.
        kind: kind of authentication: token, certificate, anonymous, or unknown.
        labels: number of labels that the caller holds, or "all".
        code: name of the status.
        reason: of a rejection, one word; empty otherwise.
        index: name of the index that was asked; empty for the only one of a service.
        mode, snapshot, partial: of the retrieval.
        items: number of entities, communities, triples and sources returned.
        queued_s: seconds that it waited in the queue.
        timings_ms: of the retrieval's parts.
        first_text_s: seconds from the start of the call to the first piece of an answer.
        input_tokens, output_tokens, model: of an answer.
        trace: its headers of the W3C trace context.
        trace_id: 32 hexadecimal digits of the trace that it belongs to; empty for none.
        started: by `time.perf_counter`.
        began_ns: start, in nanoseconds since 1970.
        seconds: duration, once it has ended.
    """

    method: str
    peer: str
    request_id: str
    caller: str = ""
    kind: str = "unknown"
    labels: int | str = ""
    code: str = "OK"
    reason: str = ""
    index: str = ""
    mode: str = ""
    snapshot: str = ""
    partial: tuple[str, ...] = ()
    items: int | None = None
    queued_s: float = 0.0
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    first_text_s: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""
    question: str = ""
    trace: Mapping[str, str] = field(default_factory=dict)
    trace_id: str = ""
    started: float = field(default_factory=time.perf_counter)
    began_ns: int = field(default_factory=time.time_ns)
    seconds: float = 0.0

    @classmethod
    def of(cls, method: str, context: Context) -> RequestRecord:
        """Start the record of a call, with the request id of its headers or a new one."""
        headers = {key: value for key, value in context.invocation_metadata() or () if key in _HEADERS}
        given = headers.pop(REQUEST_ID_KEY, "")
        if not isinstance(given, str) or not _REQUEST_ID.fullmatch(given):
            given = uuid.uuid4().hex
        trace = {key: value for key, value in headers.items() if isinstance(value, str)}
        parent = _TRACEPARENT.fullmatch(trace.get("traceparent", ""))
        trace_id = parent[1] if parent else ""
        return cls(method=method, peer=context.peer(), request_id=given, trace=trace, trace_id=trace_id)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the call began."""
        return time.perf_counter() - self.started


class AccessLog:
    """Writer of a log line per request, but for the rejections of an overloaded service beyond ten a second.

    The next line has the number of those in the field `unlogged`.

    Args:
        questions: whether the line has the question; otherwise it has nothing of the query's content.
    """

    def __init__(self, *, questions: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._questions = questions
        self._clock = clock
        self._second = 0
        self._logged = 0  # rejections of this second
        self._unlogged = 0  # rejections since the last line

    def write(self, record: RequestRecord) -> None:
        """Write the line."""
        if record.reason in SHED_REASONS and not self._may_log():
            self._unlogged += 1
            return
        fields = {
            "method": record.method,
            "code": record.code,
            "reason": record.reason,
            "ms": round(record.seconds * 1000, 1),
            "queue_ms": round(record.queued_s * 1000, 1) or None,
            "index": record.index,
            "mode": record.mode,
            "snapshot": record.snapshot,
            "partial": ",".join(record.partial),
            "items": record.items,
            "model": record.model,
            "input_tokens": record.input_tokens or None,
            "output_tokens": record.output_tokens or None,
            "caller": record.caller,
            "labels": record.labels,
            "peer": record.peer,
            "request_id": record.request_id,
            "trace_id": record.trace_id,
            "unlogged": self._unlogged or None,
            "question": record.question if self._questions else None,
        }
        self._unlogged = 0
        logger.info("request", extra={"fields": _known(fields)})

    def _may_log(self) -> bool:
        """Return whether another rejection of this second is logged."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._logged = second, 0
        self._logged += 1
        return self._logged <= _MAX_REJECTIONS_PER_S
