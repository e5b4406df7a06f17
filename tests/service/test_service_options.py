"""How the service may listen, and who may call."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.service.options import ServerOptions, server_credentials, split_address
from hirag_dist.service.tokens import TokenInterceptor, read_tokens

DIGEST = hashlib.sha256(b"open sesame").hexdigest()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:50051", "[::1]:50051", "127.9.9.9:1"])
def test_loopback_needs_nothing(listen: str) -> None:
    assert ServerOptions(listen=listen).listen == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:50051", "[::]:50051", "10.0.0.7:50051", "box.example:50051"])
def test_the_network_needs_tls_or_tokens(listen: str) -> None:
    with pytest.raises(ConfigError, match="tls_cert and tls_key, or a tokens_file"):
        ServerOptions(listen=listen)
    ServerOptions(listen=listen, tokens_file="tokens")
    ServerOptions(listen=listen, tls_cert="c", tls_key="k")


@pytest.mark.parametrize(
    "listen", ["", "50051", ":50051", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "::1:5", "h:²"]
)
def test_what_is_no_address(listen: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        split_address(listen)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_message_bytes": 10},
        {"max_concurrent": 0},
        {"keepalive_s": 0.0},
        {"drain_s": -1.0},
        {"max_connection_age_s": -1.0},
        {"tls_cert": "c"},
        {"tls_key": "k"},
        {"tls_client_ca": "a"},
    ],
)
def test_what_does_not_fit(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ServerOptions(**wrong)  # type: ignore[arg-type]


def test_tls_files_are_read_before_anything_listens(tmp_path: Path, certificates: dict[str, str]) -> None:
    cert, key = certificates["server.pem"], certificates["server.key"]
    assert server_credentials(ServerOptions()) is None
    assert server_credentials(ServerOptions(tls_cert=cert, tls_key=key, tls_client_ca=certificates["ca.pem"]))
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("hello")
    for wrong in (str(nonsense), str(tmp_path / "missing"), certificates["client.key"]):
        with pytest.raises(ConfigError, match="TLS cannot be set up from"):
            server_credentials(ServerOptions(tls_cert=cert, tls_key=wrong))
    with pytest.raises(ConfigError, match="nonsense"):
        server_credentials(ServerOptions(tls_cert=cert, tls_key=key, tls_client_ca=str(nonsense)))


def test_a_tokens_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# callers\n\nweb: {DIGEST.upper()}\n job:{hashlib.sha256(b'other').hexdigest()}\n")
    tokens = read_tokens(path)
    assert tokens == {"web": bytes.fromhex(DIGEST), "job": hashlib.sha256(b"other").digest()}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no token"),
        ("# nobody\n", "holds no token"),
        ("web\n", "line 1: a line must be name:sha256"),
        (f"web:{DIGEST}\nweb:{DIGEST}\n", "line 2: the name web stands twice"),
        ("web:open sesame\n", "line 1"),
        (f":{DIGEST}\n", "line 1"),
        (f"web:{DIGEST}00\n", "line 1"),
    ],
)
def test_a_wrong_tokens_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_tokens(path)


def test_a_missing_tokens_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tokens(tmp_path / "missing")


@pytest.mark.parametrize(
    ("header", "caller"),
    [
        ("Bearer open sesame", "web"),
        ("bearer open sesame", "web"),
        ("Bearer open sesam", None),
        ("Basic open sesame", None),
        ("open sesame", None),
        ("Bearer ", None),
        ("", None),
        (b"Bearer open sesame", None),
    ],
)
def test_who_calls(header: str | bytes, caller: str | None) -> None:
    interceptor = TokenInterceptor({"job": hashlib.sha256(b"other").digest(), "web": bytes.fromhex(DIGEST)})
    assert interceptor.caller((("user-agent", "x"), ("authorization", header))) == caller
    assert interceptor.caller(()) is None
