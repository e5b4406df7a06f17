"""Where the page may listen."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.web.options import PageOptions


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"listen": "0.0.0.0:80"}, "opens the index to the network: give tls_cert and tls_key and a callers_file"),
        ({"listen": "10.0.0.1:80", "callers": True}, "opens the index to the network"),
        ({"listen": "[::]:80", "tls_cert": "c", "tls_key": "k"}, "opens the index to the network"),
        ({"listen": "127.0.0.1"}, "HOST:PORT"),
        ({"listen": "127.0.0.1:0", "tls_cert": "c"}, "both tls_cert and tls_key"),
        ({"listen": "127.0.0.1:0", "client_cert": "c"}, "both http_client_cert and http_client_key"),
        (
            {"listen": "127.0.0.1:0", "tls_cert": "c", "tls_key": "k", "tls_client_ca": "a"},
            "give http_client_cert and http_client_key",
        ),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        PageOptions(**options)


def test_options_that_open_the_page_to_the_network() -> None:
    PageOptions("0.0.0.0:443", tls_cert="c", tls_key="k", callers=True)
