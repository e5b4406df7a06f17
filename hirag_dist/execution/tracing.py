"""OpenTelemetry spans of a build: the run, its stages, and the calls that the stages make."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hirag_dist._version import __version__
from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.execution.events import StageFailedEvent, StageFinished, StageStarted
from hirag_dist.llm.call import Call, CallReply, CallTarget


def make_provider(endpoint: str) -> Any:
    """Return a provider of spans that sends them to an OTLP collector over HTTP.

    OTEL_TRACES_SAMPLER of the environment chooses the sampler.

    Args:
        endpoint: URL of the collector, such as http://collector:4318/v1/traces.

    Raises:
        BackendUnavailable: OpenTelemetry is not installed.
        ConfigError: the endpoint is no URL.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise BackendUnavailable("traces_endpoint needs `pip install hirag_dist[otel]`") from error
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"traces_endpoint must be a URL such as http://collector:4318/v1/traces: {endpoint!r}")
    resource = Resource.create({"service.name": "hirag-dist", "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider


@contextmanager
def traced_build(endpoint: str | None, action: str) -> Iterator[BuildTracing | None]:
    """Trace a build while the block lasts; None without an endpoint."""
    if endpoint is None:
        yield None
        return
    tracing = BuildTracing(make_provider(endpoint), action)
    try:
        yield tracing
    except BaseException as error:
        tracing.close(error)
        raise
    tracing.close()


class BuildTracing:
    """A listener of a build that makes a span of the run, with one for each stage that runs.

    Args:
        provider: Provider that `make_provider` returned.
        action: `index`, `add` and so on.

    Attributes:
        traceparent: header (W3C) of the span of the run, for `CallTracing`.
    """

    def __init__(self, provider: Any, action: str) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        class StageIds(RandomIdGenerator):
            """Gives the span of a stage the id that workers derive from its folder."""

            next_id: int | None = None

            def generate_span_id(self) -> int:
                given, self.next_id = self.next_id, None
                return super().generate_span_id() if given is None else given

        self._trace = trace
        self._provider = provider
        provider.id_generator = self._ids = StageIds()
        self._tracer = provider.get_tracer("hirag_dist", __version__)
        self._run = self._tracer.start_span(f"hirag {action}")
        self._stages: dict[str, Any] = {}
        context = self._run.get_span_context()
        self._trace_id: int = context.trace_id
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def __call__(self, event: object) -> None:
        """Take an event."""
        match event:
            case StageStarted():
                self._ids.next_id = stage_span_id(self._trace_id, event.folder)
                attributes = {"hirag.tasks": event.n_tasks - event.n_done, "hirag.rows": event.n_rows}
                within = self._trace.set_span_in_context(self._run)
                self._stages[event.label] = self._tracer.start_span(event.label, within, attributes=attributes)
            case StageFinished(reused=False):
                if (stage := self._stages.pop(event.label, None)) is not None:
                    stage.set_attribute("hirag.dead_letters", event.rejects)
                    stage.end()
            case StageFailedEvent():
                self._end_failed(self._stages.pop(event.label, None), "the stage failed")

    def close(self, error: BaseException | None = None) -> None:
        """End the run, by an error if there is one, and send the pending spans. Blocks until they are sent."""
        for stage in self._stages.values():
            self._end_failed(stage, "the run ended")
        if error is None:
            self._run.end()
        else:
            self._run.set_attribute("error.type", type(error).__qualname__)
            self._end_failed(self._run, str(error))
        self._provider.shutdown()

    def _end_failed(self, span: Any, why: str) -> None:
        if span is not None:
            span.set_status(self._trace.StatusCode.ERROR, why)
            span.end()


def stage_span_id(trace_id: int, folder: str) -> int:
    """Return the id of a stage's span, which every process of a build derives by itself."""
    return int.from_bytes(hashlib.sha256(f"{trace_id:032x} {folder}".encode()).digest()[:8], "big")


class CallTracing:
    """An observer of a worker's calls that makes a span of each, under the span of its stage.

    The names are those of the semantic conventions for generative AI. A call that is made again has a span each time; a
    reply from the ledger has none.

    Args:
        provider: Provider that `make_provider` returned.
        traceparent: Value of `BuildTracing.traceparent`.
    """

    def __init__(self, provider: Any, traceparent: str) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._provider = provider
        self._tracer = provider.get_tracer("hirag_dist", __version__)
        _, trace_id, span_id, flags = traceparent.split("-")
        self._trace_id, self._run_id, self._flags = int(trace_id, 16), int(span_id, 16), int(flags, 16)

    def __call__(
        self, call: Call[Any, Any], target: CallTarget[Any, Any], began_ns: int, outcome: CallReply[Any] | BaseException
    ) -> None:
        """Make the span of a call that has ended and began so many nanoseconds after 1970."""
        stage = call.context.stage
        parent = stage_span_id(self._trace_id, stage) if stage else self._run_id
        flags = self._trace.TraceFlags(self._flags)
        remote = self._trace.SpanContext(self._trace_id, parent, is_remote=True, trace_flags=flags)
        within = self._trace.set_span_in_context(self._trace.NonRecordingSpan(remote))
        span = self._tracer.start_span(
            f"{target.operation} {target.name}", within, kind=self._trace.SpanKind.CLIENT, start_time=began_ns
        )
        span.set_attributes(
            {
                "gen_ai.operation.name": target.operation,
                "gen_ai.request.model": target.name,
                "hirag.endpoint": target.endpoint,
                "hirag.role": call.role,
            }
        )
        if isinstance(outcome, BaseException):
            span.set_attribute("error.type", type(outcome).__qualname__)
            span.set_status(self._trace.StatusCode.ERROR, str(outcome))
        else:
            n_output = getattr(outcome.value, "output_tokens", 0)
            span.set_attribute("gen_ai.usage.input_tokens", outcome.tokens - n_output)
            if target.operation == "chat":
                span.set_attribute("gen_ai.usage.output_tokens", n_output)
                span.set_attribute("gen_ai.response.model", outcome.value.model)
                span.set_attribute("gen_ai.response.finish_reasons", [outcome.value.finish_reason])
        span.end()

    def close(self) -> None:
        """Send the pending spans. Blocks until they are sent."""
        self._provider.shutdown()
