"""OpenTelemetry spans of requests, made when they end: nothing is done before, and nothing at all where it is off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hirag_dist import __version__
from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.service.access_log import RequestRecord

_SERVICE = "hirag.query.v1.QueryService"
_PARTS = ("embed", "search", "communities", "bridge", "sources", "render")  # in the order in which they are done
_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})


class Tracing:
    """Sends a span for each request, with one inside for each part of its retrieval and for its answer.

    A request of a known caller that brings a `traceparent` (W3C) continues that trace. The parts are known by how long
    they took; they are laid end to end, from when the request's turn came.

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

    def ended(self, access: RequestRecord) -> None:
        """Make the spans of a request."""
        known = access.kind != "unknown"  # a stranger's word is not taken for it that a trace is to be kept
        parent = self._propagator.extract(access.trace) if access.trace and known else None
        begin = access.began_ns
        span = self._tracer.start_span(
            f"{_SERVICE}/{access.method}", parent, kind=self._trace.SpanKind.SERVER, start_time=begin
        )
        if span.is_recording():
            self._describe(span, access)
            inside = self._trace.set_span_in_context(span)
            at = self._part(inside, "queue", begin, access.queued_s * 1e9) if access.queued_s else begin
            for name in _PARTS:
                if name in access.timings_ms:
                    at = self._part(inside, name, at, access.timings_ms[name] * 1e6)
            if access.model:
                self._answer(inside, access, at)
        span.end(begin + int(access.seconds * 1e9))

    def close(self) -> None:
        """Send what is left. Blocks for as long as that takes."""
        self._provider.shutdown()

    def _describe(self, span: Any, access: RequestRecord) -> None:
        span.set_attributes(
            _known(
                {
                    "rpc.system": "grpc",
                    "rpc.service": _SERVICE,
                    "rpc.method": access.method,
                    "hirag.request_id": access.request_id,
                    "hirag.caller": access.caller,
                    "hirag.mode": access.mode,
                    "hirag.snapshot": access.snapshot,
                    "hirag.items": access.items,
                    "hirag.partial": ",".join(access.partial),
                    "hirag.refused": access.reason,
                    "rpc.grpc.status": access.code,
                }
            )
        )
        if access.code in _FAULTS:
            span.set_status(self._trace.StatusCode.ERROR, access.code)

    def _part(self, inside: Any, name: str, begin: int, took_ns: float) -> int:
        span = self._tracer.start_span(name, inside, start_time=begin)
        end = begin + int(took_ns)
        span.end(end)
        return end

    def _answer(self, inside: Any, access: RequestRecord, begin: int) -> None:
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.response.model": access.model,
            "gen_ai.usage.input_tokens": access.input_tokens,
            "gen_ai.usage.output_tokens": access.output_tokens,
        }
        span = self._tracer.start_span("answer", inside, start_time=begin, attributes=attributes)
        span.end(access.began_ns + int(access.seconds * 1e9))


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in ("", None)}


def make_tracing(endpoint: str, ratio: float) -> Tracing:
    """Return what sends traces to an OTLP collector over HTTP.

    Args:
        endpoint: such as http://collector:4318/v1/traces.
        ratio: share of the traces that begin here; one that a caller began is kept or dropped with his.

    Raises:
        BackendUnavailable: OpenTelemetry is not installed.
        ConfigError: the endpoint is no URL.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
    except ImportError as error:
        raise BackendUnavailable("service.traces_endpoint needs `pip install hirag_dist[otel]`") from error
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"service.traces_endpoint must be a URL such as http://collector:4318/v1/traces: {endpoint!r}"
        )
    resource = Resource.create({"service.name": "hirag-dist", "service.version": __version__})
    provider = TracerProvider(resource=resource, sampler=ParentBasedTraceIdRatio(ratio), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return Tracing(provider)
