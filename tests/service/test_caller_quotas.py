"""Limits of callers: how they are counted, by one process and by several, and what outlives whom."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.service.auth.caller_registry import Caller
from hirag_dist.service.caller_quotas import DAY_S, SharedQuotas, prepare
from hirag_dist.service.shared_state import open_service_state
from hirag_dist.wire.error_status import QuotaExceeded

NOON = 20_000 * DAY_S + DAY_S / 2


class Clock:
    """Both clocks of the limits."""

    def __init__(self) -> None:
        self.s = 1000.0

    def steady(self) -> float:
        return self.s

    def now(self) -> float:
        return NOON + self.s - 1000.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path, clock: Clock) -> Path:
    path = tmp_path / "limits"
    prepare(path, clock.now)
    return path


@pytest.fixture
def limits(path: Path, clock: Clock) -> Iterator[SharedQuotas]:
    limits = SharedQuotas(path, 0, clock.steady, clock.now)
    yield limits
    limits.close()


def ask(limits: SharedQuotas, caller: Caller) -> str:
    """Ask once: empty when that is allowed, else the reason and when to come back."""
    try:
        with limits.admitted(caller):
            return ""
    except QuotaExceeded as error:
        return f"{error.reason} {error.retry_after_s:.4g}"


def test_a_rate_is_a_bucket(limits: SharedQuotas, clock: Clock) -> None:
    caller = Caller("web", per_second=2.0, burst=3.0)
    assert [ask(limits, caller) for _ in range(5)] == ["", "", "", "rate 0.5", "rate 0.5"]
    clock.s += 0.25
    assert ask(limits, caller) == "rate 0.25"
    clock.s += 0.25
    assert [ask(limits, caller) for _ in range(2)] == ["", "rate 0.5"]
    clock.s += 3600
    assert [ask(limits, caller) for _ in range(4)] == ["", "", "", "rate 0.5"]  # no more than the burst is saved up


def test_a_refusal_says_whose_it_is(limits: SharedQuotas) -> None:
    caller = Caller("web", per_day=1)
    assert ask(limits, caller) == ""
    with pytest.raises(QuotaExceeded, match=r"caller web has used its 1 request of today.* in 12\.0 h") as caught:
        limits.admitted(caller).__enter__()
    assert caught.value.caller == "web"


def test_a_quota_ends_with_the_day(limits: SharedQuotas, clock: Clock) -> None:
    caller = Caller("web", per_day=2)
    assert [ask(limits, caller) for _ in range(3)] == ["", "", f"quota {DAY_S / 2:.4g}"]
    clock.s += DAY_S / 2
    assert [ask(limits, caller) for _ in range(3)] == ["", "", f"quota {DAY_S:.4g}"]


def test_a_clock_set_back_over_midnight_gives_no_second_quota(limits: SharedQuotas, path: Path, clock: Clock) -> None:
    caller = Caller("web", per_day=2)
    clock.s += DAY_S / 2
    assert [ask(limits, caller) for _ in range(2)] == ["", ""]
    clock.s -= 10
    assert ask(limits, caller) == f"quota {DAY_S + 10:.4g}"
    prepare(path, clock.now)  # nor does a service that starts then
    again = SharedQuotas(path, 0, clock.steady, clock.now)
    assert ask(again, caller).startswith("quota")
    clock.s += DAY_S + 10
    assert ask(again, caller) == ""
    again.close()


def test_a_clock_that_was_days_ahead_locks_nobody_out(limits: SharedQuotas, clock: Clock) -> None:
    caller = Caller("web", per_day=1)
    clock.s += 365 * DAY_S
    assert [ask(limits, caller)[:5] for _ in range(2)] == ["", "quota"]
    clock.s -= 365 * DAY_S
    assert ask(limits, caller) == ""


def test_what_is_refused_is_not_charged(limits: SharedQuotas, clock: Clock) -> None:
    caller = Caller("web", per_second=1.0, burst=1.0, per_day=2)
    assert [ask(limits, caller) for _ in range(3)] == ["", "rate 1", "rate 1"]
    clock.s += 1
    assert ask(limits, caller) == ""


def test_calls_at_a_time(limits: SharedQuotas) -> None:
    caller = Caller("web", max_concurrent=2)
    with limits.admitted(caller):
        with limits.admitted(caller):
            assert ask(limits, caller) == "concurrent 0.25"
        assert ask(limits, caller) == ""
        with pytest.raises(ZeroDivisionError), limits.admitted(caller):
            raise ZeroDivisionError
        assert ask(limits, caller) == ""


def test_callers_do_not_share(limits: SharedQuotas) -> None:
    callers = [Caller(f"caller-{number}", per_day=1) for number in range(300)]
    assert [ask(limits, caller) for caller in callers] == [""] * 300
    assert all(ask(limits, caller).startswith("quota") for caller in callers)
    assert ask(limits, Caller("free")) == ""


def test_processes_share(path: Path, clock: Clock) -> None:
    with ExitStack() as held:
        first, second = (SharedQuotas(path, number, clock.steady, clock.now) for number in (0, 1))
        held.callback(first.close)
        held.callback(second.close)
        web = Caller("web", per_second=1.0, burst=3.0, per_day=10, max_concurrent=2)
        with first.admitted(web), second.admitted(web):
            assert ask(first, web) == ask(second, web) == "concurrent 0.25"
        assert [ask(first, web), ask(second, web)] == ["", "rate 1"]


@pytest.mark.integration
def test_calls_of_a_process_that_died_are_forgotten_when_its_place_is_taken(path: Path, clock: Clock) -> None:
    web = Caller("web", max_concurrent=1)
    code = """
import os, sys
from pathlib import Path
from hirag_dist.service.auth.caller_registry import Caller
from hirag_dist.service.caller_quotas import SharedQuotas
with SharedQuotas(Path(sys.argv[1]), 1).admitted(Caller("web", max_concurrent=1)):
    os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    with ExitStack() as held:
        alive = SharedQuotas(path, 0, clock.steady, clock.now)
        held.callback(alive.close)
        assert ask(alive, web).startswith("concurrent")
        SharedQuotas(path, 1, clock.steady, clock.now).close()
        assert ask(alive, web) == ""


def test_a_quota_outlives_the_service(path: Path, clock: Clock) -> None:
    web, job = Caller("web", per_second=1.0, burst=1.0, per_day=3), Caller("job", per_day=1)
    first = SharedQuotas(path, 0, clock.steady, clock.now)
    assert [ask(first, web), ask(first, job)] == ["", ""]
    first.close()
    clock.s -= 900  # the machine was restarted: its clock begins again
    prepare(path, clock.now)
    second = SharedQuotas(path, 0, clock.steady, clock.now)
    assert [ask(second, web), ask(second, web)[:4], ask(second, job)[:5]] == ["", "rate", "quota"]
    clock.s += 2
    assert [ask(second, web), ask(second, web)[:5]] == ["", "quota"]
    second.close()
    clock.s += DAY_S
    prepare(path, clock.now)
    third = SharedQuotas(path, 0, clock.steady, clock.now)
    assert [ask(third, web), ask(third, job)] == ["", ""]
    third.close()


def test_a_file_of_something_else_is_replaced(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "limits"
    path.write_text("hello")
    prepare(path, clock.now)
    limits = SharedQuotas(path, 0, clock.steady, clock.now)
    assert ask(limits, Caller("web", per_day=1)) == ""
    limits.close()


BUSY = """
import sys, time
from pathlib import Path
from hirag_dist.service.auth.caller_registry import Caller
from hirag_dist.service.caller_quotas import SharedQuotas
from hirag_dist.wire.error_status import QuotaExceeded
path, process, n = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
caller = Caller("web", per_day=int(sys.argv[4]), max_concurrent=1000)
limits = SharedQuotas(path, process)
print("ready", flush=True)
sys.stdin.read(1)
admitted = 0
for _ in range(n):
    try:
        with limits.admitted(caller):
            admitted += 1
            if "tell" in sys.argv:
                print(admitted, flush=True)
    except QuotaExceeded:
        pass
print(admitted, flush=True)
"""


def busy(path: Path, process: int, n: int, quota: int, *more: str) -> subprocess.Popen[str]:
    """Start a process that asks `n` times after a signal."""
    command = [sys.executable, "-c", BUSY, str(path), str(process), str(n), str(quota), *more]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


@pytest.mark.integration
def test_processes_at_the_same_time_let_in_no_more_than_the_quota(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    prepare(path)
    processes = [busy(path, number, 3000, 5000) for number in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    admitted = [int(process.communicate()[0]) for process in processes]
    assert sum(admitted) == 5000
    assert all(admitted)


@pytest.mark.integration
def test_a_process_killed_at_work_leaves_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    prepare(path)
    told = 0
    rounds = 6
    for number in range(rounds):
        process = busy(path, 1, 10**9, 10**9, "tell")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("x")
        process.stdin.flush()
        for _ in range(50 + 37 * number):
            last = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")
        told += int(([last.strip(), *rest[:-1]])[-1])
        process.wait()
        process.stdin.close()
        process.stdout.close()
    limits = SharedQuotas(path, 0)
    SharedQuotas(path, 1).close()  # as the supervisor does when a process has died
    left = Caller("web", per_day=told + rounds, max_concurrent=1)
    n_left = sum(ask(limits, left) == "" for _ in range(rounds + 1))
    limits.close()
    assert 0 <= n_left <= rounds  # each kill may have hit between counting and telling, and no count is lost


@pytest.mark.integration
def test_a_process_that_is_stopped_in_a_lock_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "limits"
    prepare(path)
    code = """
import fcntl, sys
file = open(sys.argv[1], "rb+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        limits = SharedQuotas(path)
        started = time.perf_counter()
        caller = Caller("web", per_day=2)
        assert [ask(limits, caller) for _ in range(3)][:2] == ["", ""]
        assert time.perf_counter() - started < 5
        assert len([each for each in caplog.records if "enforced loosely" in each.getMessage()]) == 1
        swapper.communicate("")
    assert ask(limits, caller).startswith("quota")
    limits.close()


@pytest.mark.integration
def test_one_record_that_is_stuck_does_not_slow_the_others(
    path: Path, limits: SharedQuotas, caplog: pytest.LogCaptureFixture
) -> None:
    """Callers alternate; a second lock of another caller does not release the first one."""
    stuck, free = Caller("web", per_day=1000), Caller("job", per_day=1000)
    assert [ask(limits, stuck), ask(limits, free)] == ["", ""]
    at = limits._offset("web")
    code = f"""
import fcntl, sys
file = open(sys.argv[1], "rb+")
fcntl.lockf(file, fcntl.LOCK_EX, 1, {at})
print("held", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        assert {ask(limits, caller) for _ in range(20) for caller in (stuck, free)} == {""}
        assert len([each for each in caplog.records if "enforced loosely" in each.getMessage()]) == 1
        swapper.communicate("")


def test_a_full_disk_is_found_out_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        prepare(tmp_path / "limits")
    assert not list(tmp_path.iterdir())


def test_the_file_has_no_holes(path: Path) -> None:
    """To touch a hole of a mapped file on a full disk ends the process."""
    assert path.stat().st_blocks * 512 >= path.stat().st_size


def test_a_state_folder_belongs_to_one_service(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with open_service_state(str(folder)) as state:
        assert state.quotas.parent == folder
        assert state.folder.exists()
        with pytest.raises(ConfigError, match="another service uses"), open_service_state(str(folder)):
            pass
    assert not state.folder.exists()
    with open_service_state(str(folder)) as again:
        assert again.quotas == state.quotas


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_state_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot be used"), open_service_state(str(tmp_path / "state")):
        pass


def test_a_file_for_a_state_folder(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"), open_service_state(str(tmp_path / "state")):
        pass
