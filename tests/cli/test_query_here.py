"""`query --index`: models that the command itself asks, and what it says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.cli._command_line import run
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.store import Store
from tests.scripted_endpoint import Endpoint, run_command, write_config
from tests.toy_builds import Bench

Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def model() -> Iterator[Endpoint]:
    endpoint = Endpoint(lambda asked: "Nothing is known of it.")
    yield endpoint
    endpoint.close()


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, model: Endpoint) -> Run:
    """Asks an index of two texts; returns the exit code and the object on stdout."""
    monkeypatch.chdir(tmp_path)
    Bench(tmp_path).build(["alpha beta gamma", "gamma delta"])
    write_config(tmp_path / "hirag.yaml", {"big": model.url}, {"answer": "big"})

    def query(*arguments: object) -> tuple[int, Any]:
        return run_command(["query", *arguments, "--index", "index"], monkeypatch, capfd)

    return query


@pytest.mark.parametrize("mode", ["hirag", "graphrag-global"])
@pytest.mark.parametrize(("limit", "named"), [(("--max-tokens", 10), "10 tokens"), (("--max-usd", 0), "$0")])
def test_a_spending_limit_does_not_promise_that_replies_are_kept(
    query: Run, model: Endpoint, mode: str, limit: tuple[str, float], named: str
) -> None:
    price = ("--set", "llm.endpoints.big.price.input=1", "--set", "llm.endpoints.big.price.output=1")
    code, said = query("What is beta?", "--mode", mode, *limit, *price)
    assert code == 4
    assert f"stopped before the limit of {named} was passed" in said["error"]
    assert said["error"].endswith("raise it and ask again; replies to a question are not kept")
    assert model.asked == []


@pytest.mark.usefixtures("query")
def test_the_number_of_calls_of_a_map_reduce_is_printed_before_the_first_is_sent(
    model: Endpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["query", "What is beta?", "--mode", "text-map-reduce", "--max-tokens", "10", "--index", "index"]
    assert run(arguments) == 4
    said = " ".join(capfd.readouterr().err.split())
    assert said.startswith("text-map-reduce: 2 chunks, ")
    assert "in 1 part: 1 call about it, and 1 for the answer if it helps." in said
    assert model.asked == []


def test_an_index_whose_first_build_runs_names_the_command_that_shows_its_progress(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    index = str(tmp_path / "index")
    with BuildLock(Store(index)):
        assert run(["query", "What is beta?", "--index", index]) == 1
    said = " ".join(capfd.readouterr().err.split())
    assert f"a build is under way; `hirag-dist status --index {index}` shows its progress" in said
