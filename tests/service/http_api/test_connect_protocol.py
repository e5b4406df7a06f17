"""Envelopes and names of the Connect protocol."""

from __future__ import annotations

import gzip
import struct

import grpc
import pytest
from connectrpc.code import Code

from hirag_dist.service.http_api import connect_protocol as protocol
from hirag_dist.service.http_api.status_error import StatusError


def test_codes_have_the_names_of_the_protocol() -> None:
    names = {protocol.code_name(code) for code in grpc.StatusCode} - {"ok"}
    assert names == {code.value for code in Code}


@pytest.mark.parametrize(
    ("body", "encoding", "code"),
    [
        (b"", "identity", "INVALID_ARGUMENT"),
        (b"{}", "identity", "INVALID_ARGUMENT"),
        (protocol.envelope(b"{}") + b"x", "identity", "INVALID_ARGUMENT"),
        (protocol.envelope(b"{}") * 2, "identity", "INVALID_ARGUMENT"),
        (protocol.envelope(b"{}", end=True), "identity", "INVALID_ARGUMENT"),
        (struct.pack(">BI", 0, 2**32 - 1) + b"{}", "identity", "INVALID_ARGUMENT"),
        (b"\x01" + protocol.envelope(b"{}")[1:], "gzip", "INVALID_ARGUMENT"),
        (b"\x01" + protocol.envelope(b"{}")[1:], "br", "UNIMPLEMENTED"),
        (b"\x01" + protocol.envelope(gzip.compress(b" " * 10_000_000))[1:], "gzip", "RESOURCE_EXHAUSTED"),
    ],
)
def test_wrong_envelopes(body: bytes, encoding: str, code: str) -> None:
    with pytest.raises(StatusError) as raised:
        protocol.open_envelope(body, encoding, 1000)
    assert raised.value.code.name == code


def test_envelopes() -> None:
    assert protocol.open_envelope(protocol.envelope(b"{}"), "identity", 1000) == b"{}"
    packed = b"\x01" + protocol.envelope(gzip.compress(b"{}"))[1:]
    assert protocol.open_envelope(packed, "gzip", 1000) == b"{}"
