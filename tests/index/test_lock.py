"""One build at a time: a live holder is respected, a dead one is not waited for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.errors import IndexBusy
from hirag_dist.index.lock import BuildLock
from hirag_dist.index.store import Store

HOLDER = """
import sys
from hirag_dist.index.lock import BuildLock
from hirag_dist.index.store import Store
with BuildLock(Store(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(**changes: Any) -> dict[str, Any]:
    known = {"host": "elsewhere", "pid": 1, "since": "2030-01-01T00:00:00Z", "token": "t", "beat": time.time()}
    return known | changes


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_lock_is_there_while_it_is_held(store: Store) -> None:
    with BuildLock(store):
        found = store.read_json("run.lock")
        assert (found["pid"], found["host"]) == (os.getpid(), socket.gethostname())
    assert not store.exists("run.lock")


def test_the_lock_goes_when_the_build_fails(store: Store) -> None:
    with pytest.raises(RuntimeError), BuildLock(store):
        raise RuntimeError
    assert not store.exists("run.lock")


def test_a_live_process_is_respected_and_a_killed_one_is_not(store: Store) -> None:
    command = [sys.executable, "-c", HOLDER, store.root]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(IndexBusy, match=f"process {process.pid} on {socket.gethostname()} since .*; wait for it"):
            BuildLock(store).__enter__()
        assert store.read_json("run.lock")["pid"] == process.pid, "the holder keeps it"
        process.kill()
        process.wait()
        with BuildLock(store):
            assert store.read_json("run.lock")["pid"] == os.getpid()


def test_a_dead_process_of_this_machine_is_not_waited_for(store: Store) -> None:
    store.write_json("run.lock", holder(host=socket.gethostname(), pid=dead_pid()))
    with BuildLock(store):
        assert store.read_json("run.lock")["pid"] == os.getpid()


def test_another_machine_is_believed_as_long_as_its_heart_beats(store: Store) -> None:
    store.write_json("run.lock", holder())
    with pytest.raises(IndexBusy, match="on elsewhere"):
        BuildLock(store).__enter__()
    store.write_json("run.lock", holder(beat=time.time() - 61))
    with BuildLock(store):
        pass


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"pid": 1}'])
def test_a_damaged_lock_is_taken_over(store: Store, data: bytes) -> None:
    store.write_bytes("run.lock", data)
    with BuildLock(store):
        assert store.read_json("run.lock")["pid"] == os.getpid()


def test_a_lock_that_was_taken_over_is_left_to_its_new_holder(store: Store, tmp_path: Path) -> None:
    with BuildLock(store):
        store.write_json("run.lock", holder(token="other"))
    assert store.read_json("run.lock")["token"] == "other"
