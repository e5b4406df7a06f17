"""OpenTelemetry spans of requests, made when the requests end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hirag_dist._version import __version__
from hirag_dist.service.access_log import RequestRecord

_SERVICE = "hirag.query.v1.QueryService"
_PARTS = ("embed", "search", "communities", "bridge", "sources", "render")  # in the order in which they are done
_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})


class Tracing:
    """Exporter of a span per request, with child spans for the parts of its retrieval and for its answer.

    A request of an authenticated caller with a `traceparent` header (W3C) continues that trace. Of the parts only the
    durations are known; their spans follow each other from the end of the wait in the queue.

    Args:
        provider: of OpenTelemetry.
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
                self._answer(inside, record, at)
        span.end(begin + int(record.seconds * 1e9))

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

    def _answer(self, inside: Any, record: RequestRecord, begin: int) -> None:
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.response.model": record.model,
            "gen_ai.usage.input_tokens": record.input_tokens,
            "gen_ai.usage.output_tokens": record.output_tokens,
        }
        span = self._tracer.start_span("answer", inside, start_time=begin, attributes=attributes)
        span.end(record.began_ns + int(record.seconds * 1e9))


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in ("", None)}
