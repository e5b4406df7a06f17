"""Spans of a build, as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.application.build import run_build
from hirag_dist.config.model import Config
from hirag_dist.errors import StageFailed
from hirag_dist.testing.simulator import SimulatorOptions
from tests.simulator_thread import SimulatorThread

pytest.importorskip("opentelemetry.sdk")
TEXT = "Ada Lovelace wrote notes on the engine of Charles Babbage. Charles Babbage lived in London."


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """The endpoint of a collector, and the spans that it was sent."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            sent = ExportTraceServiceRequest.FromString(body)
            spans.extend(span for each in sent.resource_spans for scope in each.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
        server.shutdown()


def config(endpoint: str, url: str, **keys: Any) -> Config:
    endpoints = {
        "chat": {"base_url": url, "model": "large", "api_key": "k", "output": "delimited"},
        "vectors": {"base_url": url, "model": "small", "api_key": "k", "dim": 64},
    }
    roles = dict.fromkeys(("extract", "summarise", "report"), "chat") | {"embed": "vectors"}
    llm = {"endpoints": endpoints, "roles": roles}
    inline = {"execution": {"executor": "inline"}}
    return Config.model_validate({"traces_endpoint": endpoint, "llm": llm} | inline | keys)


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def test_a_build_is_a_trace_of_stages_and_of_their_calls(tmp_path: Path, collector: tuple[str, list[Any]]) -> None:
    endpoint, spans = collector
    (tmp_path / "a.txt").write_text(TEXT)
    with SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", dim=64)) as url:
        result = run_build([str(tmp_path / "a.txt")], str(tmp_path / "index"), config(endpoint, url))
    (run,) = (span for span in spans if not span.parent_span_id)
    assert run.name == "hirag index"
    assert {span.trace_id for span in spans} == {run.trace_id}
    stages = {span.span_id: span for span in spans if span.parent_span_id == run.span_id}
    calls = [span for span in spans if span.parent_span_id in stages]
    assert len(stages) + len(calls) + 1 == len(spans)
    assert {"documents", "chunks", "extract"} <= {span.name for span in stages.values()}
    assert Counter(attributes(call)["gen_ai.operation.name"] for call in calls).keys() == {"chat", "embeddings"}
    asked = [attributes(call) for call in calls if stages[call.parent_span_id].name == "extract"]
    assert asked
    expected = {"gen_ai.request.model": "large", "hirag.role": "extract", "hirag.endpoint": "chat"}
    assert all(call.items() >= expected.items() for call in asked)
    used = sum(
        attributes(call)["gen_ai.usage.input_tokens"] + attributes(call).get("gen_ai.usage.output_tokens", 0)
        for call in calls
    )
    assert used == result.sent.sent_sums()["tokens"]
    for call in calls:
        stage = stages[call.parent_span_id]
        assert stage.start_time_unix_nano <= call.start_time_unix_nano <= call.end_time_unix_nano


def test_a_failed_build_ends_its_spans_with_the_error(tmp_path: Path, collector: tuple[str, list[Any]]) -> None:
    endpoint, spans = collector
    (tmp_path / "a.txt").write_text(TEXT)
    with SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", dim=64, malformed_rate=1.0)) as url:
        made = config(endpoint, url, max_reject_ratio=0)
        with pytest.raises(StageFailed):
            run_build([str(tmp_path / "a.txt")], str(tmp_path / "index"), made)
    failed = {span.name: span for span in spans if span.status.code == span.status.STATUS_CODE_ERROR}
    assert failed.keys() == {"hirag index", "extract"}
    assert attributes(failed["hirag index"])["error.type"] == "StageFailed"
