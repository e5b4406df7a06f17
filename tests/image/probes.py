"""Probes of a container, done from outside as the kubelet does them."""

from __future__ import annotations

import socket
import time
import urllib.request
from contextlib import suppress

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.deploy.charts import Object
from tests.image.pods import Pod


def succeeds(pod: Pod, probe: Object) -> bool:
    """Return the result of a probe: gRPC health, an HTTP path or an open port."""
    timeout_s = probe["timeoutSeconds"]
    ports = {each["name"]: each["containerPort"] for each in pod.container.get("ports", ())}
    match probe:
        case {"grpc": {"port": port}}:
            with grpc.insecure_channel(f"{pod.address}:{port}") as channel, suppress(grpc.RpcError):
                asked = health_pb2.HealthCheckRequest(service="")
                reply = health_pb2_grpc.HealthStub(channel).Check(asked, timeout=timeout_s)
                return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
        case {"httpGet": {"port": port, "path": path}}:
            url = f"http://{pod.address}:{ports.get(port, port)}{path}"
            with suppress(OSError), urllib.request.urlopen(url, timeout=timeout_s) as reply:
                return bool(reply.status == 200)
        case {"tcpSocket": {"port": port}}:
            with suppress(OSError), socket.create_connection((pod.address, ports.get(port, port)), timeout_s):
                return True
        case _:
            raise AssertionError(f"probe {probe} is not done here")
    return False


def await_ready(pod: Pod) -> float:
    """Wait for the startup probe and then the readiness probe, within the limit of the former; return the seconds."""
    startup = pod.container["startupProbe"]
    began_at = time.monotonic()
    give_up_at = began_at + startup["periodSeconds"] * startup["failureThreshold"]
    for probe in (startup, pod.container["readinessProbe"]):
        while not succeeds(pod, probe):
            assert pod.running(), f"{pod.name} ended: {pod.logs()}"
            assert time.monotonic() < give_up_at, f"{pod.name} is not ready: {pod.logs()}"
            time.sleep(0.2)
    return time.monotonic() - began_at
