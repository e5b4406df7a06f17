"""A process is known to have ended only under its own kernel and in its own pid namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hirag_dist.storage.lock_holder import HolderProcess, LockHolder, own_process


@pytest.fixture
def child() -> Iterator[HolderProcess]:
    """A process that has ended and was reaped, as it knew itself."""
    code = "import json, dataclasses as d; from hirag_dist.storage.lock_holder import own_process as o\n"
    code += "print(json.dumps(d.asdict(o())))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return HolderProcess(**json.loads(done.stdout))


class TestHasEnded:
    def test_a_live_process_has_not(self) -> None:
        own = own_process()
        assert own.pid == os.getpid()
        assert own.boot
        assert own.pid_namespace
        assert own.started
        assert own == own_process()
        assert not own.has_ended(own)

    @pytest.mark.integration
    def test_a_process_that_is_gone_has(self, child: HolderProcess) -> None:
        assert child.has_ended(own_process())

    @pytest.mark.integration
    @pytest.mark.parametrize("field", ["host", "boot", "pid_namespace"])
    def test_elsewhere_it_is_not_known(self, child: HolderProcess, field: str) -> None:
        for value in ("another", ""):
            assert not replace(child, **{field: value}).has_ended(own_process())

    def test_a_process_id_that_was_used_again_is_another_process(self) -> None:
        own = own_process()
        earlier = replace(own, started=own.started - 1)
        assert earlier.has_ended(own)
        assert not replace(own, started=0).has_ended(own), "the lock of an earlier version has no start time"

    @pytest.mark.integration
    def test_a_zombie_has_ended(self) -> None:
        with subprocess.Popen(["sleep", "1000"]) as process:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            zombie = replace(own_process(), pid=process.pid, started=int(fields[19]))
            assert not zombie.has_ended(own_process())
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            assert zombie.has_ended(own_process())


def test_the_content_of_a_lock_is_read_back_and_a_damaged_one_names_nobody() -> None:
    holder = LockHolder(own_process(), "now", "token", 1.5, 2.5, 3)
    assert LockHolder.decode(holder.encode()) == holder
    assert LockHolder.decode(b'{"host": "a", "pid": 7, "since": "", "token": "", "beat": 1}') == LockHolder(
        HolderProcess("a", 7), "", "", 1.0, 0.0, 0
    ), "what is not known"
    for damaged in (b"", b"[]", b"{}", holder.encode()[:-5], b'{"host": "a", "pid": "x"}'):
        assert LockHolder.decode(damaged) is None
