"""Tokens on the caller's side: from a file that changes, and for one call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.client import ClientOptions, Unauthenticated
from hirag_dist.client.common import CallArguments, TokenFile
from hirag_dist.errors import ConfigError
from tests.service import fakes


async def test_a_token_is_rotated_under_a_client(
    start: fakes.Start, engine: fakes.FakeEngine, connect: Any, tmp_path: Path
) -> None:
    service = await start(engine, callers_file=fakes.CallersFile(tmp_path / "callers.yaml").add("old").add("new").path)
    mine = tmp_path / "token"
    mine.write_text("old-token\n")
    client = connect(service.address, token_file=mine)
    assert await client.call("retrieve", "q") == engine.whole
    mine.write_text("a wrong one\n")
    for ask in (client.call("retrieve", "q"), client.collect("answer_stream", "q")):
        with pytest.raises(Unauthenticated, match="bearer token"):
            await ask
    mine.write_text("new-token\n")
    assert await client.call("retrieve", "q") == engine.whole
    assert (await client.collect("answer_stream", "q"))[0] == engine.whole


async def test_one_client_asks_on_behalf_of_several(
    start: fakes.Start, engine: fakes.FakeEngine, connect: Any, tmp_path: Path
) -> None:
    service = await start(engine, callers_file=fakes.CallersFile(tmp_path / "callers.yaml").add("ada").path)
    client = connect(service.address, token="nobody")
    for name in ("retrieve", "answer"):
        assert await client.call(name, "q", token="ada-token")
        with pytest.raises(Unauthenticated):
            await client.call(name, "q")
    assert (await client.call("describe", token="ada-token")) == engine.info


def test_a_token_file_that_is_gone_for_a_moment_keeps_its_last_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" one \n")
    held = TokenFile(path)
    path.unlink()
    assert held.token() == "one"
    path.write_text("")
    assert held.token() == "one"
    path.write_text("another")
    assert held.token() == "another"


def test_a_replaced_file_is_seen_whatever_its_time_and_size(tmp_path: Path) -> None:
    path, other = tmp_path / "token", tmp_path / "other"
    path.write_text("one")
    held = TokenFile(path)
    other.write_text("two")
    stat = path.stat()
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.rename(path)  # as Kubernetes and careful programs do
    assert held.token() == "two"


@pytest.mark.parametrize(("content", "words"), [(b"", "is empty"), (b"\xff\xfe", "is no text"), (b"a\nb", "one line")])
def test_token_files_that_hold_no_token(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        ClientOptions(token_file=path)


def test_tokens_that_cannot_be_sent(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one line of ASCII"):
        ClientOptions(token="a\r\nx-other: b")
    with pytest.raises(ConfigError, match="one line of ASCII"):
        CallArguments(ClientOptions()).of({"token": "Schlüssel"})
    with pytest.raises(ConfigError, match="either token or token_file"):
        ClientOptions(token="a", token_file=tmp_path / "b")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        ClientOptions(token_file=tmp_path / "missing")


def test_a_token_does_not_show() -> None:
    assert "sesame" not in repr(ClientOptions(token="open-sesame"))
