"""Telemetry of a service: log lines, metrics, traces."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from hirag_dist.client.common import service_stub
from hirag_dist.service.access_log import AccessLog, RequestRecord, Tracing
from hirag_dist.service.hot_swap import SingleIndex
from hirag_dist.service.metrics import FOLDER_VARIABLE, WorkerMetrics
from hirag_dist.service.metrics_server import serve_metrics
from hirag_dist.service.options import ServerOptions
from hirag_dist.service.server import serve
from hirag_dist.wire._pb import query_pb2 as pb
from tests.service import fakes

QUERY = pb.Query(question="Who lit the lamp?")
REQUEST = pb.RetrieveRequest(query=QUERY)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.name == "hirag_dist.service.access_log"]  # type: ignore[attr-defined]


def test_rejections_under_overload_are_logged_ten_a_second_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hirag_dist.service.access_log")
    now = 7.0
    log = AccessLog(clock=lambda: now)
    asked = RequestRecord("Retrieve", "", "")
    shed = replace(asked, code="RESOURCE_EXHAUSTED", reason="queue")
    for _ in range(13):
        log.write(shed)
    log.write(replace(asked, code="RESOURCE_EXHAUSTED", reason="quota"))  # of one caller
    log.write(asked)
    now = 8.0
    log.write(shed)
    reasons = [(read.get("reason"), read.get("unlogged")) for read in lines(caplog)]
    assert reasons == [*[("queue", None)] * 10, ("quota", 3), (None, None), ("queue", None)]


async def test_the_line_of_a_request(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hirag_dist.service.access_log")
    callers.add("few", quota_per_day=1, labels=["public"])
    stub = (await start(engine, callers_file=callers.path)).stub
    _ = [part async for part in stub.Answer(pb.AnswerRequest(query=QUERY), metadata=fakes.token("few"))]
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Retrieve(REQUEST, metadata=fakes.token("few"))
    first, second = lines(caplog)
    assert first.items() >= {"caller": "few", "labels": 1, "items": 6, "model": "extractive", "code": "OK"}.items()
    assert second.items() >= {"caller": "few", "code": "RESOURCE_EXHAUSTED", "reason": "quota"}.items()
    assert "lamp" not in caplog.text  # nothing of the question


def read_metrics(address: str) -> dict[str, float]:
    """`name{label=value,…}` → value."""
    found = {}
    for family in text_string_to_metric_families(urllib.request.urlopen(f"http://{address}/metrics").read().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def page(registry: CollectorRegistry) -> dict[str, float]:
    with serve_metrics("127.0.0.1:0", registry, lambda: True) as address:
        return read_metrics(address)


def readiness(address: str) -> int:
    try:
        return int(urllib.request.urlopen(f"http://{address}/ready").status)
    except urllib.error.HTTPError as error:
        return error.code


COUNT = """
import sys
from hirag_dist.service.access_log import RequestRecord
from hirag_dist.service.request_gate import LoadShedder
from hirag_dist.service.metrics import Metrics
metrics = Metrics(None)
facts = {"created_at": float(sys.argv[2]), "loaded_at": float(sys.argv[2]), "serving": True}
metrics.describe(sys.argv[1], facts)
metrics.count_request(RequestRecord("Retrieve", "", "", kind="token", timings_ms={"total": 10.0}))
admission = LoadShedder(max_retrievals=1, max_queue_wait_s=1, max_requests=9, max_answers=1)
with admission.counted():
    metrics.sample(admission, None)
"""


@pytest.mark.integration
def test_processes_are_added_up(tmp_path: Path) -> None:
    workers = WorkerMetrics(tmp_path, 2)
    processes = []
    for snapshot, seconds in (("s1", "100"), ("s2", "150")):
        command = [sys.executable, "-c", COUNT, snapshot, seconds]
        processes.append(subprocess.Popen(command, env=os.environ | {FOLDER_VARIABLE: str(tmp_path)}))
    assert [process.wait() for process in processes] == [0, 0]
    found = page(workers.registry)
    assert found["hirag_service_requests_total{caller=token,code=OK,method=Retrieve}"] == 2
    assert found["hirag_retrieval_part_seconds_count{part=total}"] == 2
    assert found["hirag_service_requests_in_flight{state=answering_or_sending}"] == 2
    assert found["hirag_service_serving{}"] == 2
    assert (found["hirag_snapshot_info{snapshot=s1}"], found["hirag_snapshot_info{snapshot=s2}"]) == (1, 1)
    assert found["hirag_snapshot_created_timestamp_seconds{}"] == 100
    assert found["hirag_snapshot_loaded_timestamp_seconds{}"] == 150
    workers.count_death(processes[0].pid)
    found = page(workers.registry)
    assert found["hirag_service_serving{}"] == 1
    assert found["hirag_snapshot_created_timestamp_seconds{}"] == 150
    assert found["hirag_service_requests_total{caller=token,code=OK,method=Retrieve}"] == 2  # counters never go back
    assert found["hirag_service_requests_in_flight{state=answering_or_sending}"] == 1
    assert found["hirag_service_worker_deaths_total{}"] == 1
    assert found["hirag_service_workers{}"] == 2


async def test_metrics_of_a_running_service(
    engine: fakes.FakeEngine, callers: fakes.CallersFile, certificates: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """It is not ready before the first snapshot and once it was asked to stop."""
    caplog.set_level(logging.INFO, "hirag_dist.service.metrics_server")
    expires = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
    callers.add("new", expires=expires)
    may_open, stop, ready = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()
    options = ServerOptions(
        listen="127.0.0.1:0",
        callers_file=callers.path,
        tls_cert=certificates["server.pem"],
        tls_key=certificates["server.key"],
        metrics_listen="127.0.0.1:0",
        drain_delay_s=60.0,
    )
    index = SingleIndex(fakes.swapper_of(engine, may_open))
    serving = asyncio.create_task(serve(index, options, ready.set_result, stop))
    try:
        while not (said := [record for record in caplog.records if "metrics on" in record.getMessage()]):
            await asyncio.sleep(0)
        address = said[0].getMessage().split()[-1].split("/")[2]
        assert await asyncio.to_thread(readiness, address) == 503
        may_open.set()
        root = grpc.ssl_channel_credentials(Path(certificates["ca.pem"]).read_bytes())
        async with grpc.aio.secure_channel(await ready, root) as channel:
            await service_stub(channel).Retrieve(REQUEST, metadata=fakes.token("new"))
        assert await asyncio.to_thread(readiness, address) == 200
        found = await asyncio.to_thread(read_metrics, address)
        stop.set()
        while await asyncio.to_thread(readiness, address) != 503:  # and it goes on answering for a minute
            await asyncio.sleep(0)
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    assert found["hirag_service_requests_total{caller=token,code=OK,method=Retrieve}"] == 1
    assert found["hirag_snapshot_info{snapshot=s1}"] == 1
    assert found["hirag_service_token_expiry_timestamp_seconds{}"] == expires.timestamp()
    assert found["hirag_service_callers{}"] == 2


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def test_a_trace_goes_on_through_the_service(start: fakes.Start, engine: fakes.FakeEngine) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    service = await start(engine)
    records: list[RequestRecord] = []
    service.server.observe(Tracing(provider).export)
    service.server.observe(records.append)
    await service.stub.Retrieve(REQUEST, metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"),))
    spans = exporter.get_finished_spans()
    (root,) = (span for span in spans if span.name.endswith("/Retrieve"))
    assert f"{root.context.trace_id:032x}" == TRACE
    assert [record.trace_id for record in records] == [TRACE]  # in the log too
    assert {span.name for span in spans} >= {"search"}
