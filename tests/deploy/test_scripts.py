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

ORDER = {"build": ["index", "s3://bucket/it's $(here); `x`", "--wait", "600"], "accepted": [3]}
LONGER = ORDER | {"retry": ["retry", "--index", "i"], "prune": ["prune", "--index", "i"]}


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
    assert json.loads(done.stdout) == ORDER["build"]
    assert ("is accepted" in done.stderr) == (code == 3)


@pytest.mark.parametrize(
    ("codes", "accepted", "ends_with", "ran"),
    [
        ((0, None, 0), [], 0, "index prune"),
        ((0, None, 1), [], 1, "index prune"),  # old snapshots pile up: somebody should look
        ((3, 0, 0), [], 0, "index retry prune"),
        ((3, 3, 0), [3], 0, "index retry prune"),
        ((3, 3, None), [], 3, "index retry"),
        ((3, 4, None), [3], 4, "index retry"),
        ((1, None, None), [3], 1, "index"),
        ((4, None, None), [3], 4, "index"),
    ],
)
def test_what_follows_a_build(
    tmp_path: Path, codes: tuple[int | None, ...], accepted: list[int], ends_with: int, ran: str
) -> None:
    answers = dict(zip(("index", "retry", "prune"), codes, strict=True))
    environ = standing_in(tmp_path, f"import sys\nprint(sys.argv[1])\nsys.exit({answers}[sys.argv[1]])")
    order = LONGER | {"accepted": accepted}
    done = subprocess.run(command(tmp_path, order), env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (ends_with, ran.split())


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
    process = subprocess.Popen(command(tmp_path, LONGER), env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    assert process.stdout.read() == ""
    process.stdout.close()


def test_nothing_is_begun_after_the_stop() -> None:
    """A build that was done when the signal came is not followed by another command."""
    build = script("build")
    runner = build.Runner()
    runner.stop()
    assert build.run(LONGER, runner) == 130


class Server:
    """An API server that knows RayJobs: what it answers, and what it was asked."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str, str, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(None)

            def do_DELETE(self) -> None:
                self.answer(None)

            def do_POST(self) -> None:
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answer(self, body: Any) -> None:
                server.asked.append((self.command, self.path, self.headers["Authorization"], body))
                code, said = server.replies.pop(0)
                text = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
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


START_S = 3600.0


def built(server: Server, account: Path, clock: Clock) -> int:
    rayjob = script("rayjob")
    account.mkdir(exist_ok=True)
    (account / "token").write_text("t0ken\n", encoding="utf-8")
    api = rayjob.Api(server.address, "search", account)
    result: int = rayjob.build(api, JOB, START_S, clock=clock, sleep=clock.sleep)
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


@pytest.mark.parametrize(
    "end",
    [("Failed", "FAILED"), ("Complete", "FAILED"), ("Complete", "STOPPED"), ("Failed", ""), ("ValidationFailed", "")],
)
def test_a_build_that_failed_fails(server: Server, tmp_path: Path, end: tuple[str, str]) -> None:
    server.replies = [(201, {}), state(*end)]
    assert built(server, tmp_path, Clock()) == 10


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


@pytest.mark.parametrize("reply", [(401, {}), (403, {}), (200, b"<html>"), (200, b"null"), (200, b'{"status": ')])
def test_what_is_said_of_a_build_that_runs_may_pass(server: Server, tmp_path: Path, reply: tuple[int, Any]) -> None:
    """A token that is being renewed, a proxy's page, half a reply: the build goes on, so it is watched on."""
    server.replies = [(201, {}), state("Running", "RUNNING"), reply, reply, state("Complete", "SUCCEEDED")]
    assert built(server, tmp_path, Clock()) == 0


def test_a_rayjob_that_waits_in_a_queue_is_left_there(server: Server, tmp_path: Path) -> None:
    server.replies = [(201, {}), *[state("Suspended")] * 500, state("Complete", "SUCCEEDED")]
    assert built(server, tmp_path, Clock()) == 0


def test_a_rayjob_that_was_deleted_ends_the_watch(server: Server, tmp_path: Path) -> None:
    server.replies = [(201, {}), state("Running"), (404, {"message": "not found"})]
    with pytest.raises(Exception, match="says 404"):
        built(server, tmp_path, Clock())


def test_a_rayjob_that_does_not_begin_is_taken_back(server: Server, tmp_path: Path) -> None:
    """No node, no quota, no image: else it would be watched for ever, and no later build begun."""
    clock = Clock()
    server.replies = [(201, {}), *[state("Initializing")] * 242, (503, {}), (200, {})]
    assert built(server, tmp_path, clock) == 10
    assert [asked[0] for asked in server.asked[-2:]] == ["DELETE", "DELETE"]
    assert server.asked[-1][1] == f"{PATH}/build-1"
    assert clock.now >= START_S


def test_a_rayjob_that_begins_again_has_as_long_again(server: Server, tmp_path: Path) -> None:
    begun, begins = state("Running", "RUNNING"), [state("Initializing")] * 200
    server.replies = [(201, {}), *begins, begun, state("Retrying"), *begins, begun, state("Complete", "SUCCEEDED")]
    assert built(server, tmp_path, Clock()) == 0


def test_the_rayjob_is_not_named_as_the_job_that_watches_it() -> None:
    """KubeRay submits a RayJob through a Job of the RayJob's name: one that is there already it takes for its own."""
    stem, watching, uid = f"{'n' * 32}-run", f"{'n' * 32}-build-29384120", "0b5e9c1e-4a52-4d0e-9c0e-0d4a3f6c2b11"
    made = script("rayjob").named({"metadata": {"name": stem}}, {"JOB_NAME": watching, "JOB_UID": uid})
    assert made["metadata"]["name"] == f"{stem}-0b5e9c1e"
    assert len(made["metadata"]["name"]) <= 47
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": watching, "uid": uid}
    assert made["metadata"]["ownerReferences"] == [owner]


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
