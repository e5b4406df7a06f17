"""Options of `mcp` that are refused, before anything is served."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.cli import main

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def mcp(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command; returns its exit code and its line on stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["hirag-dist", "mcp", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capfd.readouterr()
        assert out == ""
        return int(ended.value.code or 0), " ".join(err.split())

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either --index URI or --server HOST:PORT"),
        (["--index", "a", "--ca", "c", "--tls"], "--ca, --tls cannot go with --index"),
        (["--server", "b:1", "--as-label", "x", "--max-usd", "1"], "--max-usd, --as-label cannot go with --server"),
        (["--server", "b:1", "--http", "127.0.0.1:0", "--token-file", "t"], "every caller would have the same rights"),
        (["--index", "a", "--http", "0.0.0.0:80"], "opens the whole index to the network"),
        (["--server", "b:1", "--http", "0.0.0.0:80"], "would send tokens over the network in the clear"),
    ],
)
def test_refused(mcp: Run, arguments: list[str], message: str) -> None:
    code, said = mcp(*arguments)
    assert code in (1, 2)
    assert said.startswith("hirag-dist: ")
    assert message in said


def test_without_the_extra(mcp: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    find: Any = importlib.util.find_spec
    monkeypatch.setattr("hirag_dist.cli.mcp.find_spec", lambda name: None if name == "mcp" else find(name))
    assert mcp("--index", "a") == (
        2,
        "hirag-dist: this needs the extra mcp: run `pip install 'hirag-dist[mcp]'`",
    )
