"""`query`: what reaches a service, what this process asks models itself, and what is shown and refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hirag_dist._loop_thread import LoopThread
from hirag_dist.cli import _output
from hirag_dist.cli._command_line import run
from hirag_dist.cli._output import err
from hirag_dist.cli.query import _ask, show_answer
from hirag_dist.errors import InvalidQuery
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.store import Store
from hirag_dist.types import Answer, Citation, Place, Query, SourceItem
from tests.scripted_endpoint import Endpoint, run_command, write_config
from tests.service import fakes
from tests.toy_builds import Bench

SENTENCE = "The keeper, who had slept badly for a week, lit the lamp [sic] long before the first of the ships came in."


def test_piped_answers_have_whole_lines_and_the_cited_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"A storm rose.\n{SENTENCE} Nobody slept."
    title = "A log of many words, " * 12
    source = SourceItem("k1", "d1", title, "log.txt", 10, 10 + len(text), text, 0.3)
    start = 10 + text.index(SENTENCE)
    places = (Place(start, start + len(SENTENCE), "page", "p. 7"),)
    cited = (Citation("S1", "chunk", "k1", title, places=places), Citation("E1", "entity", "e1", "Lighthouse"))
    answer = Answer(f"{SENTENCE} [S1]", cited, 0, replace(fakes.WHOLE, sources=(source,)), "", 1, 1)
    show_answer(answer)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "",
        "Answer",
        f"{SENTENCE} [S1]",
        f"  [S1] {title.strip()}, p. 7",
        f"      {SENTENCE}",
        "  [E1] Lighthouse",
    ]


def test_cited_files_of_one_name_are_told_apart_by_their_paths(capsys: pytest.CaptureFixture[str]) -> None:
    sources = tuple(
        SourceItem(f"k{own}", f"d{own}", title, f"{own}/{title}.txt", 0, 4, "Text", 0.3)
        for own, title in (("a", "same"), ("b", "same"), ("c", "other"))
    )
    cited = tuple(
        Citation(f"S{at}", "chunk", each.chunk_id, each.title, each.document_id, each.uri)
        for at, each in enumerate(sources)
    )
    show_answer(Answer("Text.", cited, 0, replace(fakes.WHOLE, sources=sources), "", 1, 1))
    shown = [line.strip() for line in capsys.readouterr().out.splitlines() if "[S" in line]
    assert shown == ["[S0] same (a/same.txt)", "[S1] same (b/same.txt)", "[S2] other"]


@pytest.fixture
def start() -> Iterator[Callable[..., str]]:
    """Starts a service in a thread with a loop of its own, as the command blocks its own; returns the address."""
    services, thread = fakes.Services(), LoopThread("services", lambda: RuntimeError("the services are closed"))
    yield lambda engine, **options: str(thread.run(services.start(engine, **options)).address)
    thread.run(services.stop())
    thread.close()


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Any]:
    """Runs the command; returns its exit code, and the object on stdout."""
    monkeypatch.chdir(tmp_path)

    return lambda *arguments: run_command(("query", *arguments), monkeypatch, capfd)


def test_what_is_asked_reaches_the_service(query: Any, start: Any) -> None:
    engine = fakes.FakeEngine()
    options = ("--mode", "flat", "--top-n", 3, "--top-m", 2, "--label", "lang:de", "--label", "public")
    code, said = query("q", "--server", start(engine), *options, "--deadline", 5, "--context-only")
    assert (code, said["snapshot_id"]) == (0, "s1")
    asked = engine.queries[0]
    assert (asked.mode, asked.top_n, asked.top_m, asked.labels) == ("flat", 3, 2, ("lang:de", "public"))
    assert 4 < engine.deadlines[0] < 10  # gRPC rounds the time left up; without the option it is 60 s


def test_an_error_names_the_option(query: Any, start: Any) -> None:
    code, said = query("q", "--server", start(fakes.FakeEngine()), "--top-n", 0)
    assert (code, said["error"]) == (2, "--top-n must be at least 1, got 0")
    engine = fakes.FakeEngine()
    engine.error = InvalidQuery("index: the service has several")
    code, said = query("q", "--server", start(engine))
    assert (code, said["error"]) == (2, "--index-name: the service has several")


def test_mutual_tls_and_a_token(query: Any, start: Any, certificates: dict[str, str], tmp_path: Path) -> None:
    files = {"tls_cert": "server.pem", "tls_key": "server.key", "tls_client_ca": "ca.pem"}
    callers = fakes.CallersFile(tmp_path / "callers.yaml").add("web")
    engine = fakes.FakeEngine()
    address = start(engine, callers_file=callers.path, **{name: certificates[file] for name, file in files.items()})
    token = tmp_path / "token"
    token.write_text("web-token\n")
    own = ("--ca", certificates["ca.pem"], "--cert", certificates["client.pem"], "--key", certificates["client.key"])
    assert query("q", "--server", address, *own, "--token-file", token)[0] == 0
    code, said = query("q", "--server", address, *own, "--token-file", token, "--server-name", "elsewhere")
    assert code == 1
    assert "(--server-name) be a name in it" in said["error"]
    code, said = query("q", "--server", address, *own)
    assert code == 1
    assert "bearer token that it knows and that has not expired: give one by --token-file" in said["error"]


@pytest.mark.integration
def test_tls_to_a_service_without_it_is_one_line(start: Any) -> None:
    command = (sys.executable, "-m", "hirag_dist", "query", "q", "--server", start(fakes.FakeEngine()), "--tls")
    environ = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "if the service uses no TLS, connect without it; else root_certificates (--ca) must hold" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give either --index URI or --server HOST:PORT"),
        (("--server", "y:1", "--config", "c.yaml"), "--config cannot go with --server"),
        (("--server", "y:1", "--token-file", "missing"), "the token file missing cannot be read: No such file"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(query: Any, arguments: tuple[str, ...], words: str) -> None:
    code, said = query("q", *arguments)
    assert code == 2
    assert words in said["error"]


@pytest.fixture
def model() -> Iterator[Endpoint]:
    endpoint = Endpoint(lambda asked: "Nothing is known of it.")
    yield endpoint
    endpoint.close()


@pytest.fixture
def asks_index(query: Any, tmp_path: Path, model: Endpoint) -> Callable[..., tuple[int, Any]]:
    """Asks an index of two texts; returns the exit code and the object on stdout."""
    Bench(tmp_path).build(["alpha beta gamma", "gamma delta"])
    write_config(tmp_path / "hirag.yaml", {"big": model.url}, {"answer": "big"})
    return lambda *arguments: query(*arguments, "--index", "index")


def test_a_model_that_fails_is_told_with_how_to_see_what_was_retrieved(asks_index: Any, model: Endpoint) -> None:
    model.script = lambda asked: 401
    code, said = asks_index("What is beta?")
    assert (code, said["error"].count("; --context-only shows what was retrieved, without a model")) == (1, 1)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_told_whose_answer_is_awaited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    class Slow:
        def answer_stream(self, query: Any, timeout_s: Any) -> Iterator[Any]:
            yield fakes.WHOLE
            printed.wait(5.0 if terminal else 0.05)
            yield fakes.ANSWER

    def show(*said: Any, **how: Any) -> None:
        print_line(*said, **how)
        printed.set()

    printed, print_line, slow = threading.Event(), err.print, cast(Any, Slow())
    monkeypatch.setattr(_output, "_LATE_S", 0.0)
    monkeypatch.setattr(err, "_force_terminal", terminal)
    monkeypatch.setattr(err, "print", show)
    assert _ask(slow, Query("Who?"), False, False, None, "Waiting for the answer of local …") == fakes.ANSWER
    assert capsys.readouterr().err.strip() == ("Waiting for the answer of local …" if terminal else "")


@pytest.mark.parametrize("mode", ["hirag", "graphrag-global"])
@pytest.mark.parametrize(("limit", "named"), [(("--max-tokens", 10), "10 tokens"), (("--max-usd", 0), "$0")])
def test_a_spending_limit_does_not_promise_that_replies_are_kept(
    asks_index: Any, model: Endpoint, mode: str, limit: tuple[str, float], named: str
) -> None:
    price = ("--set", "llm.endpoints.big.price.input=1", "--set", "llm.endpoints.big.price.output=1")
    code, said = asks_index("What is beta?", "--mode", mode, *limit, *price)
    assert code == 4
    assert f"stopped before the limit of {named} was passed" in said["error"]
    assert said["error"].endswith("raise it and ask again; replies to a question are not kept")
    assert model.asked == []


@pytest.mark.usefixtures("asks_index")
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
