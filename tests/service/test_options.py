"""Options of the service for listening."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.service.options import PageOptions, ServerOptions
from hirag_dist.service.web.run import names_in
from hirag_dist.wire.addresses import split_address


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:50051", "[::1]:50051", "127.9.9.9:1"])
def test_loopback_needs_nothing(listen: str) -> None:
    assert ServerOptions(listen=listen).listen == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:50051", "[::]:50051", "10.0.0.7:50051", "box.example:50051"])
def test_on_the_network_callers_must_be_known(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"callers_file .* or by tls_client_ca, or listen on 127.0.0.1"):
        ServerOptions(listen=listen)
    with pytest.raises(ConfigError, match="anybody on the network"):  # encrypted, but still for anybody
        ServerOptions(listen=listen, tls_cert="c", tls_key="k")
    ServerOptions(listen=listen, callers_file="callers.yaml")
    ServerOptions(listen=listen, tls_cert="c", tls_key="k", tls_client_ca="a")


@pytest.mark.parametrize(
    "listen", ["", "50051", ":50051", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "::1:5", "h:²"]
)
def test_what_is_no_address(listen: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        split_address(listen)


@pytest.mark.parametrize("wrong", [{"tls_cert": "c"}, {"tls_key": "k"}, {"tls_client_ca": "a"}])
def test_what_does_not_fit(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ServerOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"listen": "0.0.0.0:80"}, "opens the index to the network: give tls_cert and tls_key and a callers_file"),
        ({"listen": "[::]:80", "tls_cert": "c", "tls_key": "k"}, "opens the index to the network"),
        ({"listen": "127.0.0.1:0", "tls_cert": "c"}, "both tls_cert and tls_key"),
        ({"listen": "127.0.0.1:0", "origins": ("*",)}, "lets every web page ask where no token is needed"),
        (
            {"listen": "127.0.0.1:0", "tls_cert": "c", "tls_key": "k", "tls_client_ca": "a"},
            "give http_client_cert and http_client_key",
        ),
    ],
)
def test_options_of_the_page_that_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        PageOptions(**options)


def test_the_names_in_a_certificate(certificates: dict[str, str]) -> None:
    assert names_in(certificates["server.pem"], certificates["server.key"]) == ("localhost", "127.0.0.1")
    with pytest.raises(ConfigError, match="TLS cannot be set up from"):
        names_in(certificates["server.pem"], certificates["client.key"])
    with pytest.raises(ConfigError, match="TLS cannot be set up from missing"):
        names_in("missing", certificates["server.key"])


@pytest.mark.integration
def test_the_process_of_the_page_brings_nothing_of_the_engine() -> None:
    modules = "hirag_dist.composition.serving_process, hirag_dist.service.web.run"
    code = f"import {modules}, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert imported.isdisjoint({"ray", "pymilvus", "numba", "scipy", "sklearn", "pyarrow", "openai"})
