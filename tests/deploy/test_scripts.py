"""The scripts that the chart mounts: running a build, waiting for a snapshot (`test_schedule`: making a RayJob)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.storage.layout import CURRENT
from tests.deploy.charts import SOURCE, script

ORDER = {"build": ["index", "s3://bucket/it's $(here); `x`", "--wait", "600"], "accepted": [3]}
LONGER = ORDER | {"retry": ["retry", "--index", "i"], "prune": ["prune", "--index", "i"]}


def standing_in(folder: Path, code: str) -> dict[str, str]:
    """Return an environment whose `hirag-dist` is a given program."""
    program = folder / "hirag-dist"
    program.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
    program.chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}


def command(folder: Path, order: dict[str, Any]) -> list[str]:
    (folder / "hirag.yaml").write_text("seed: 1\n", encoding="utf-8")
    whole = order | {"config": str(folder / "hirag.yaml")}
    (folder / "order.json").write_text(json.dumps(whole), encoding="utf-8")
    return [sys.executable, str(SOURCE / "files/build.py"), str(folder / "order.json")]


def run(folder: Path, order: dict[str, Any], code: str) -> subprocess.CompletedProcess[str]:
    """Execute an order where `hirag-dist` is a given program."""
    environ = standing_in(folder, code)
    return subprocess.run(command(folder, order), env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("code", "ends_with"), [(0, 0), (1, 1), (3, 0), (130, 130)])
def test_a_build_ends_as_hirag_dist_does_but_for_what_is_accepted(tmp_path: Path, code: int, ends_with: int) -> None:
    done = run(tmp_path, ORDER, f"import sys, json\nprint(json.dumps(sys.argv[1:]))\nsys.exit({code})")
    assert done.returncode == ends_with
    assert json.loads(done.stdout)[:-2] == ORDER["build"]
    assert ("is accepted" in done.stderr) == (code == 3)


@pytest.mark.parametrize(
    ("codes", "accepted", "ends_with", "ran"),
    [
        ((0, None, 1), [], 1, "index prune"),  # old snapshots pile up: an operator should look
        ((3, 0, 0), [], 0, "index retry prune"),
        ((3, 3, None), [], 3, "index retry"),
        ((3, 4, None), [3], 4, "index retry"),
        ((4, None, None), [3], 4, "index"),
        ((5, None, None), [5], 0, "index"),  # another build holds the index, and prunes
    ],
)
def test_what_follows_a_build(
    tmp_path: Path, codes: tuple[int | None, ...], accepted: list[int], ends_with: int, ran: str
) -> None:
    answers = dict(zip(("index", "retry", "prune"), codes, strict=True))
    code = f"import sys\nprint(sys.argv[1])\nsys.exit({answers}[sys.argv[1]])"
    done = run(tmp_path, LONGER | {"accepted": accepted}, code)
    assert (done.returncode, done.stdout.split()) == (ends_with, ran.split())


def test_what_follows_reads_what_the_build_read(tmp_path: Path) -> None:
    """Though the release is upgraded meanwhile; nothing of the copy stays."""
    code = f"""
import pathlib, sys
at = sys.argv.index("--config") + 1
print(sys.argv[at], pathlib.Path(sys.argv[at]).read_text())
pathlib.Path({str(tmp_path / "hirag.yaml")!r}).write_text("seed: 2")
sys.exit(3 if sys.argv[1] == "index" else 0)
"""
    done = run(tmp_path, LONGER, code)
    assert done.returncode == 0, done.stderr
    copy = done.stdout.split()[0]
    assert done.stdout.split() == [copy, "seed:", "1"] * 3
    assert not Path(copy).exists()


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
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    assert process.stdout.read() == ""
    process.stdout.close()


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
