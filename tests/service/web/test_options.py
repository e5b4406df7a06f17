"""Options of the page for listening, and the imports of its process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.service.options import PageOptions
from hirag_dist.service.web.run import names_in


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
def test_options_that_are_refused(options: dict[str, Any], words: str) -> None:
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
