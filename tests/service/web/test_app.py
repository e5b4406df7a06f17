"""The page's server without a browser: who is let in, what is passed on, and what errors become."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from hirag_dist.client import AsyncHiragClient, ClientOptions
from hirag_dist.errors import BackendUnavailable, ModelError, ServiceError
from hirag_dist.service.http_api.gateway import Gateway, GatewayCall
from hirag_dist.service.options import PageOptions
from hirag_dist.service.request_gate import SERVICE_NAME
from hirag_dist.service.web.run import Page, serve_page
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.error_status import STATUS
from tests.service import fakes

pytestmark = pytest.mark.asyncio(loop_scope="module")

Serve = Callable[..., Any]


async def test_every_trouble_of_a_model_has_advice() -> None:
    advice = files("hirag_dist.service.web").joinpath("static/advice.js").read_text("utf-8")
    troubles = {kind.__name__ for kind, _ in STATUS if issubclass(kind, ModelError)} - {"ModelError"}
    assert [name for name in troubles if f"  {name}: [" not in advice] == []


async def test_a_port_that_is_in_use_names_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        with pytest.raises(BackendUnavailable, match=f"{address}: the port is in use; choose another with --http"):
            await Page(PageOptions(address), "127.0.0.1:1").__aenter__()


async def test_every_reply_says_how_it_may_be_used(served: fakes.Service) -> None:
    for method, path, host, status in (
        ("GET", "", None, 200),
        ("GET", "", "evil.example", 421),  # its name was made to resolve to this machine
        ("GET", "static/app.js", None, 200),
        ("GET", "static/../run.py", None, 404),
        ("GET", "static/%2e%2e%2frun.py", None, 404),
        ("GET", "nowhere", None, 404),
        ("GET", f"{SERVICE_NAME}/Answer", None, 405),
        ("POST", f"{SERVICE_NAME}/Answer", None, 400),
    ):
        headers = {"Content-Type": "application/json"} | ({} if host is None else {"Host": host})
        response = await served.request(method, path, headers=headers)
        assert response.status == status, path
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Frame-Options"] == "DENY"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Server"] == "hirag-dist"
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_the_page_asks_for_nobody_in_its_own_name(
    serve: Serve, certificates: dict[str, str], tmp_path: Path
) -> None:
    own = {"tls_cert": certificates["server.pem"], "tls_key": certificates["server.key"]}
    own["tls_client_ca"] = certificates["ca.pem"]
    client = {"client_cert": certificates["client.pem"], "client_key": certificates["client.key"]}
    callers = fakes.CallersFile(tmp_path / "callers.yaml").add("ada").add("page", certificates=["client"], labels="all")
    served = await serve(page=own | client, callers_file=callers.path, **own)
    trust = ssl.create_default_context(cafile=certificates["ca.pem"])
    trust.load_cert_chain(certificates["client.pem"], certificates["client.key"])
    asked = {"query": {"question": "q"}}
    for token, status in ((None, 401), ("eve-token", 401), ("ada-token", 200)):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        assert (await served.post(f"{SERVICE_NAME}/Retrieve", asked, headers=headers, ssl=trust)).status == status
    assert [query.reach for query in served.engine.queries] == [frozenset()]  # ada's, not the certificate's


async def test_a_grpc_client_at_the_http_port(served: fakes.Service, caplog: pytest.LogCaptureFixture) -> None:
    address = served.url.removeprefix("http://").rstrip("/")
    async with AsyncHiragClient(address, retries=False) as client:
        with pytest.raises(ServiceError, match="or give its gRPC port if this is its HTTP port"):
            await client.describe()
    lines = [record for record in caplog.records if record.name == "aiohttp.server"]
    assert lines
    for record in lines:
        assert record.exc_info is None
        assert record.getMessage().endswith("gRPC clients ask at the port of service.listen")


async def test_a_new_certificate_is_taken_up(
    serve: Serve, certificates: dict[str, str], tmp_path: Path, caplog: Any
) -> None:
    paths = {"tls_cert": str(tmp_path / "cert.pem"), "tls_key": str(tmp_path / "key.pem")}
    shutil.copy(certificates["server.pem"], paths["tls_cert"])
    shutil.copy(certificates["server.key"], paths["tls_key"])
    served = await serve(page=paths, tls_cert=certificates["server.pem"], tls_key=certificates["server.key"])

    async def works(authority: str) -> bool:
        trust = ssl.create_default_context(cafile=authority)
        try:
            response = await served.request("GET", "", ssl=trust, headers={"Connection": "close"})
        except aiohttp.ClientConnectorCertificateError:
            return False
        return response.status == 200

    other = tmp_path / "other"
    other.mkdir()
    renewed = fakes.certificates(other)
    assert await works(certificates["ca.pem"])
    Path(paths["tls_cert"]).write_text("half a certifi")
    for _ in range(2):
        assert not served.page.renew()
    assert [record.levelname for record in caplog.records if "stays in force" in record.message] == ["ERROR"]
    assert await works(certificates["ca.pem"])
    shutil.copy(renewed["server.pem"], paths["tls_cert"])
    shutil.copy(renewed["server.key"], paths["tls_key"])
    assert served.page.renew()
    assert await works(renewed["ca.pem"])
    assert not await works(certificates["ca.pem"])


async def test_a_replaced_connection_is_closed_when_its_last_question_ends(serve: Serve) -> None:
    served = await serve(page=None)
    options = ClientOptions(served.address)
    gateway = Gateway(connections=1)
    gateway.connect(options)
    (first,) = gateway._channels
    asked = pb.RetrieveRequest(query=pb.Query(question="q")).SerializeToString()
    question = await served.engine.held(gateway.unary("Retrieve", asked, GatewayCall(60.0, "one")))
    gateway.connect(options)
    assert first.channel.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
    served.engine.gate.set()
    assert await question
    while first.channel.get_state() is not grpc.ChannelConnectivity.SHUTDOWN:
        await asyncio.sleep(0.01)
    assert await gateway.unary("Retrieve", asked, GatewayCall(60.0, "two"))
    await gateway.close()


async def test_a_page_that_is_leaving_still_answers_until_a_second_signal(serve: Serve) -> None:
    service, stop, url = await serve(), asyncio.Event(), asyncio.get_running_loop().create_future()
    options = PageOptions("127.0.0.1:0", drain_delay_s=3600)
    page = asyncio.create_task(serve_page(options, service.address, url.set_result, stop))
    address = await url
    stop.set()
    await service.server.set_stopping()
    for path, status in (("healthz", 200), ("readyz", 503)):
        async with service.http.get(address + path) as response:
            assert response.status == status
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(page, 20)
