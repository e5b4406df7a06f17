"""The scripts that the chart mounts: running a build, making a RayJob, waiting for a snapshot."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hirag_dist.index.layout import CURRENT
from tests.deploy.charts import SOURCE

ORDER = {"arguments": ["index", "s3://bucket/it's $(here); `x`", "--wait", "600"], "accepted": [3]}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SOURCE / "files" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def standing_in(folder: Path, code: str) -> dict[str, str]:
    """Return an environment whose `hirag-dist` is a program of ours."""
    program = folder / "hirag-dist"
    program.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
    program.chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}


def command(folder: Path, order: dict[str, Any]) -> list[str]:
    (folder / "order.json").write_text(json.dumps(order), encoding="utf-8")
    return [sys.executable, str(SOURCE / "files/build.py"), str(folder / "order.json")]


@pytest.mark.parametrize(("code", "ends_with"), [(0, 0), (1, 1), (2, 2), (3, 0), (4, 4), (130, 130)])
def test_a_build_ends_as_hirag_dist_does_but_for_what_is_accepted(tmp_path: Path, code: int, ends_with: int) -> None:
    environ = standing_in(tmp_path, f"import sys, json\nprint(json.dumps(sys.argv[1:]))\nsys.exit({code})")
    done = subprocess.run(command(tmp_path, ORDER), env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == ends_with
    assert json.loads(done.stdout) == ORDER["arguments"]
    assert ("is accepted" in done.stderr) == (code == 3)


def test_a_build_that_is_killed_fails(tmp_path: Path) -> None:
    environ = standing_in(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert subprocess.run(command(tmp_path, ORDER), env=environ, check=False).returncode == 128 + signal.SIGKILL


def test_a_build_that_is_asked_to_stop_is_interrupted(tmp_path: Path) -> None:
    """SIGTERM comes as SIGINT, at which hirag-dist keeps the replies in flight."""
    code = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
try:
    print("ready", flush=True)
    signal.pause()
except KeyboardInterrupt:
    sys.exit(130)
"""
    environ = standing_in(tmp_path, code)
    process = subprocess.Popen(command(tmp_path, ORDER), env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    process.stdout.close()


class Server:
    """An API server that knows RayJobs: what it answers, and what it was asked."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, dict[str, Any]]] = []
        self.asked: list[tuple[str, str, str, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(None)

            def do_POST(self) -> None:
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answer(self, body: Any) -> None:
                server.asked.append((self.command, self.path, self.headers["Authorization"], body))
                code, said = server.replies.pop(0)
                text = json.dumps(said).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


JOB = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "build-1"}, "spec": {"entrypoint": "x"}}
PATH = "/apis/ray.io/v1/namespaces/search/rayjobs"


def state(deployment: str, job: str = "") -> tuple[int, dict[str, Any]]:
    return 200, {"status": {"jobDeploymentStatus": deployment, "jobStatus": job}}


def built(server: Server, account: Path, clock: Clock) -> int:
    rayjob = script("rayjob")
    account.mkdir(exist_ok=True)
    (account / "token").write_text("t0ken\n", encoding="utf-8")
    api = rayjob.Api(server.address, "search", account)
    result: int = rayjob.build(api, JOB, clock=clock, sleep=clock.sleep)
    return result


def test_a_rayjob_is_made_and_watched_to_its_end(server: Server, tmp_path: Path) -> None:
    server.replies = [
        (201, {}),
        (200, {}),
        state("Initializing"),
        state("Running", "RUNNING"),
        state("Complete", "SUCCEEDED"),
    ]
    clock = Clock()
    assert built(server, tmp_path, clock) == 0
    assert server.asked[0] == ("POST", PATH, "Bearer t0ken", JOB)
    assert [asked[:2] for asked in server.asked[1:]] == [("GET", f"{PATH}/build-1")] * 4
    assert clock.now == 3 * 15


@pytest.mark.parametrize("end", [("Failed", "FAILED"), ("Complete", "FAILED"), ("Complete", "STOPPED"), ("Failed", "")])
def test_a_build_that_failed_fails(server: Server, tmp_path: Path, end: tuple[str, str]) -> None:
    server.replies = [(201, {}), state(*end)]
    assert built(server, tmp_path, Clock()) == 1


def test_a_pod_that_comes_second_watches_the_rayjob_that_is_there(server: Server, tmp_path: Path) -> None:
    server.replies = [(409, {"reason": "AlreadyExists"}), state("Complete", "SUCCEEDED")]
    assert built(server, tmp_path, Clock()) == 0


def test_what_passes_is_waited_for(server: Server, tmp_path: Path) -> None:
    """Made twice at most: a reply that was lost may have been a yes, and then the second try is told so."""
    server.replies = [(503, {}), (429, {}), (201, {}), (500, {}), state("Complete", "SUCCEEDED")]
    assert built(server, tmp_path, Clock()) == 0
    assert [asked[0] for asked in server.asked] == ["POST", "POST", "POST", "GET", "GET"]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 422])
def test_what_is_refused_is_not_asked_again(server: Server, tmp_path: Path, code: int) -> None:
    server.replies = [(code, {"message": "no"})]
    with pytest.raises(Exception, match=rf"says {code} of RayJob build-1: .*no"):
        built(server, tmp_path, Clock())
    assert len(server.asked) == 1


def test_a_rayjob_that_was_deleted_ends_the_watch(server: Server, tmp_path: Path) -> None:
    server.replies = [(201, {}), state("Running"), (404, {"message": "not found"})]
    with pytest.raises(Exception, match="says 404"):
        built(server, tmp_path, Clock())


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    gone = Server()
    gone.close()
    clock = Clock()
    with pytest.raises(Exception, match="out of reach"):
        built(gone, tmp_path, clock)
    assert 600 < clock.now <= 615


def test_patience_begins_anew_with_each_reply(server: Server, tmp_path: Path) -> None:
    quiet = [(503, {})] * 39  # 585 s
    server.replies = [(201, {}), state("Running"), *quiet, state("Running"), *quiet, state("Complete", "SUCCEEDED")]
    clock = Clock()
    assert built(server, tmp_path, clock) == 0
    assert clock.now > 1100


def test_the_wait_ends_with_the_first_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wait = script("wait")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            (tmp_path / CURRENT).write_text("abc123\n", encoding="utf-8")

    assert wait.wait(str(tmp_path), sleep) == "abc123"
    assert slept == [5.0] * 3
    assert capsys.readouterr().err == "waiting: there is no snapshot yet\nsnapshot abc123\n"
