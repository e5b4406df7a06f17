"""One build at a time: a live holder is respected, a dead one is not waited for, a late one publishes nothing."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.errors import IndexBusy, StoreError
from hirag_dist.storage.lock import BuildLock, HolderProcess, LockTiming, own_process
from hirag_dist.storage.snapshot.reader import current_id, read_current
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store
from hirag_dist.storage.store_errors import store_error
from tests.storage.s3_server import S3Server, s3_server

HOLDER = """
import sys
from hirag_dist.errors import IndexBusy
from hirag_dist.storage.lock import BuildLock, LockTiming
from hirag_dist.storage.store import Store
store = Store(sys.argv[1])
with BuildLock(store, timing=LockTiming(beat_s=0.02)) as lock:
    print("held", flush=True)
    for line in sys.stdin:
        try:
            with lock.fenced():
                store.write_bytes("current", line.encode())
            print("published", flush=True)
        except IndexBusy as error:
            print(error, flush=True)
print("left", flush=True)
"""


class Clock:
    """Clocks of one machine that are moved by each sleep; the wall clock can jump."""

    def __init__(self) -> None:
        self.now = time.time()
        self.uptime = time.monotonic()
        self.slept = 0.0
        self.meanwhile = lambda: None

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.uptime += seconds

    def sleep(self, seconds: float) -> None:
        self.pass_by(seconds)
        self.slept += seconds
        self.meanwhile()

    def lock(self, store: Store, wait_s: float = 0.0, **options: Any) -> BuildLock:
        options = {"clock": lambda: self.now, "monotonic": lambda: self.uptime, "sleep": self.sleep} | options
        return BuildLock(store, wait_s, **options)


def holder(**changes: Any) -> dict[str, Any]:
    """Return the lock of a process elsewhere, as an earlier version wrote it unless `changes` say more."""
    known = {"host": "elsewhere", "pid": 1, "since": "2030-01-01T00:00:00Z", "token": "t", "beat": time.time()}
    return known | changes


def holder_here(clock: Clock, **changes: Any) -> dict[str, Any]:
    """Return the lock of a live process under this kernel, in another pid namespace unless `changes` say otherwise."""
    here = own_process()
    known = {"boot": here.boot, "clock": here.clock, "pid_namespace": "pid:[1]", "started": 1}
    return holder(host=here.host, beat=clock.now, uptime=clock.uptime, **(known | changes))


def start_holder(store: Store) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, store.root]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def tell(process: subprocess.Popen[str], line: str) -> str:
    print(line, file=process.stdin, flush=True)
    return process.stdout.readline().strip()


class TestHolding:
    def test_epochs_rise_even_where_the_lock_was_removed_between(self, store: Store) -> None:
        clock = Clock()
        epochs = []
        for _ in range(3):
            with clock.lock(store):
                epochs.append(store.read_json("run.lock")["epoch"])
            clock.pass_by(0.01)
        store.write_json("run.lock", holder(epoch=epochs[-1] + 10**6, beat=0.0))
        with clock.lock(store):
            epochs.append(store.read_json("run.lock")["epoch"])
        assert epochs == sorted(set(epochs))

    def test_the_heart_beats(self, store: Store) -> None:
        clock = Clock()
        with clock.lock(store, timing=LockTiming(beat_s=0.005), sleep=time.sleep) as lock:  # both wait for the guard
            since = store.read_json("run.lock")
            clock.pass_by(100)
            give_up_at = time.monotonic() + 120
            while (now := store.read_json("run.lock"))["beat"] < since["beat"] + 100:
                assert time.monotonic() < give_up_at
            assert now["uptime"] >= since["uptime"] + 100
            assert {**now, "beat": 0, "uptime": 0} == {**since, "beat": 0, "uptime": 0}
            lock.check()


class TestBusy:
    @pytest.mark.integration
    def test_a_live_process_is_respected_and_a_killed_one_is_not(self, store: Store) -> None:
        with start_holder(store) as process:
            said = f"process {process.pid} on {socket.gethostname()} since .*, last heard of [0-9]+ s ago; wait for it"
            with pytest.raises(IndexBusy, match=said):
                BuildLock(store).__enter__()
            assert store.read_json("run.lock")["pid"] == process.pid, "the holder keeps it"
            process.kill()
            process.wait()
            assert not BuildLock(store).is_held()
            with BuildLock(store):
                assert store.read_json("run.lock")["pid"] == os.getpid()
            assert not store.exists("run.lock")

    @pytest.mark.integration
    def test_a_container_with_the_same_host_name_is_respected(self, store: Store) -> None:
        """Its process 1 is not the one of this namespace, and its other process ids do not exist here."""
        clock = Clock()
        with subprocess.Popen(["true"]) as dead:
            dead.wait()
        for pid in (dead.pid, 1, os.getpid()):
            store.write_json("run.lock", holder_here(clock, pid=pid))
            assert clock.lock(store).is_held()
            with pytest.raises(IndexBusy, match="is being built by process"):
                clock.lock(store).__enter__()

    def test_two_builds_of_one_process_exclude_each_other(self, store: Store) -> None:
        with BuildLock(store) as lock:
            with pytest.raises(IndexBusy, match=f"process {os.getpid()} on"):
                BuildLock(store).__enter__()
            lock.check()

    @pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"host": "a", "pid": "x"}', b'{"beat": "x"}', b"\xff"])
    def test_a_damaged_lock_is_taken_over(self, store: Store, data: bytes) -> None:
        store.write_bytes("run.lock", data)
        with BuildLock(store):
            assert store.read_json("run.lock")["pid"] == os.getpid()

    def test_it_waits_until_the_other_ends(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        clock = Clock()
        store.write_json("run.lock", holder(beat=clock.now))

        clock.meanwhile = lambda: store.delete("run.lock") if clock.slept > 3 else None
        with clock.lock(store, 20.0) as lock:
            lock.check()
        assert 3 < clock.slept < 5
        assert [record.message for record in caplog.records if "waiting up to 20 s" in record.message]


DAY_S = 86400.0


class TestClockJumps:
    """A jump of a wall clock neither ends the lease of a live build nor keeps that of a dead one."""

    @pytest.mark.parametrize("jump_s", [-DAY_S, DAY_S])
    def test_a_live_build_of_this_machine_is_respected(self, store: Store, jump_s: float) -> None:
        clock = Clock()
        store.write_json("run.lock", holder_here(clock))
        clock.now += jump_s
        assert clock.lock(store).is_held()
        with pytest.raises(IndexBusy):
            clock.lock(store, 30.0).__enter__()
        assert clock.slept == 30.0

    @pytest.mark.parametrize("jump_s", [-DAY_S, DAY_S])
    def test_a_dead_build_of_this_machine_is_taken_over_after_its_lease(self, store: Store, jump_s: float) -> None:
        clock = Clock()
        store.write_json("run.lock", holder_here(clock))
        clock.pass_by(61.0)
        clock.now += jump_s
        assert not clock.lock(store).is_held()
        with clock.lock(store):
            assert clock.slept == 0.0

    @pytest.mark.parametrize("jump_s", [-DAY_S, 0.0, DAY_S])
    def test_a_live_build_of_another_machine_is_respected(self, store: Store, jump_s: float) -> None:
        clock = Clock()

        def meanwhile() -> None:  # a heartbeat every 10 s, by a wall clock that differs
            store.write_json("run.lock", holder(beat=clock.now + jump_s - clock.slept % 10))

        clock.meanwhile = meanwhile
        meanwhile()
        for wait_s in (0.0, 90.0):
            with pytest.raises(IndexBusy, match="on elsewhere"):
                clock.lock(store, wait_s).__enter__()

    @pytest.mark.parametrize("jump_s", [-DAY_S, DAY_S, float("nan")])
    def test_a_dead_build_of_another_machine_is_taken_over_after_a_lease(self, store: Store, jump_s: float) -> None:
        clock = Clock()
        store.write_json("run.lock", holder(beat=clock.now + jump_s))
        with clock.lock(store):
            assert clock.slept == 60.0

    def test_a_jump_while_waiting_changes_no_waiting_time(self, store: Store) -> None:
        clock = Clock()
        clock.meanwhile = lambda: setattr(clock, "now", clock.now + (-1) ** int(clock.slept) * DAY_S)
        store.write_json("run.lock", holder(beat=clock.now))
        with pytest.raises(IndexBusy):
            clock.lock(store, 30.0).__enter__()
        assert clock.slept == 30.0
        with clock.lock(store, 100.0):
            assert clock.slept <= 30.0 + 61.0


class TestTakenOver:
    def test_a_lock_that_was_taken_over_is_left_to_its_new_holder(self, store: Store) -> None:
        later = holder(token="other", epoch=10**15)
        with BuildLock(store) as lock:
            store.write_json("run.lock", later)
            with pytest.raises(IndexBusy, match=r"taken over by process 1 on elsewhere .*; what it paid for is kept"):
                lock.check()
        assert store.read_json("run.lock") == later

    def test_the_heartbeat_does_not_take_it_back(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        later = holder(token="other", epoch=10**15)
        with BuildLock(store, timing=LockTiming(beat_s=0.005)) as lock:
            give_up_at = time.monotonic() + 120
            while not [record for record in caplog.records if "taken over" in record.message]:
                store.write_json("run.lock", later)  # again: a beat may just have been on its way over it
                assert time.monotonic() < give_up_at
                time.sleep(0.01)
            store.delete("run.lock")  # even when the other has ended: the index is not as it was
            with pytest.raises(IndexBusy, match="taken over"):
                lock.check()
        assert not store.exists("run.lock")

    def test_a_lock_that_is_gone_was_taken_over_by_one_that_has_ended(self, store: Store) -> None:
        with BuildLock(store) as lock:
            store.delete("run.lock")
            with pytest.raises(IndexBusy, match="the lock is gone"):
                lock.check()

    def test_a_late_write_of_an_earlier_holder_is_undone(self, store: Store) -> None:
        with BuildLock(store) as lock:
            own = store.read_json("run.lock")
            store.write_json("run.lock", holder(token="earlier", epoch=own["epoch"] - 1))
            lock.check()
            assert store.read_json("run.lock")["token"] == own["token"]

    def test_a_storage_that_is_out_of_reach_is_no_take_over(self, store: Store) -> None:
        class Flaky(Store):
            down = False

            def read_bytes(self, path: str) -> bytes:
                if self.down:
                    raise StoreError("out of reach")
                return super().read_bytes(path)

        flaky = Flaky(store.root)
        with BuildLock(flaky) as lock:
            flaky.down = True
            with pytest.raises(StoreError, match="out of reach"):
                lock.check()
            flaky.down = False
            lock.check()

    @pytest.mark.integration
    def test_a_builder_that_was_stopped_and_wakes_publishes_nothing(self, store: Store) -> None:
        with start_holder(store) as process:
            assert tell(process, "one") == "published"
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            clock = Clock()
            clock.pass_by(61)
            with clock.lock(store) as lock:
                own = store.read_json("run.lock")
                process.send_signal(signal.SIGCONT)
                assert "taken over by process" in tell(process, "late")
                assert store.read_bytes("current") == b"one\n"
                lock.check()
                assert store.read_json("run.lock")["token"] == own["token"]
                process.stdin.close()
                assert process.stdout.readline() == "left\n"
                lock.check()

    def test_nobody_takes_over_in_the_middle_of_a_fence(self, store: Store) -> None:
        clock = Clock()
        with BuildLock(store) as lock, lock.fenced():
            clock.pass_by(1000)
            with pytest.raises(IndexBusy, match="stopped while it was publishing"):
                clock.lock(store).__enter__()
        with clock.lock(store):
            pass


CONTENDER = """
import sys
from hirag_dist.errors import IndexBusy
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.store import Store
for line in sys.stdin:
    lock = BuildLock(Store(line.strip()))
    try:
        lock.__enter__()
    except IndexBusy as error:
        print(error, flush=True)
        sys.stdin.readline()
        continue
    print("held", flush=True)
    sys.stdin.readline()
    lock.check()
    lock.__exit__(None, None, None)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[S3Server, str]]:
    with s3_server() as running:
        yield running


@pytest.fixture
def app(server: tuple[S3Server, str]) -> S3Server:
    return server[0]


@pytest.fixture
def remote(server: tuple[S3Server, str], request: pytest.FixtureRequest) -> str:
    """The URI of an index of the test's own."""
    return server[1].replace("index", request.node.originalname)


class TestOnS3:
    @pytest.mark.integration
    def test_one_of_two_processes_that_start_together_wins(self, app: S3Server, remote: str) -> None:
        command = [sys.executable, "-c", CONTENDER]
        with ExitStack() as stack:
            processes = [
                stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
                for _ in range(2)
            ]
            for number in range(24):
                app.delay_s = 1.5 if number == 12 else 0.0
                results = race(processes, remote.replace("?", f"-{number % 4}?"))
                assert results[0] == "held", results
                assert re.search("started at the same moment|is being built by process", results[1]), results
            for process in processes:
                process.stdin.close()

    def test_a_dead_holder_is_taken_over_by_one_of_two(self, remote: str) -> None:
        store, clock = Store(remote), Clock()
        store.write_json("run.lock", holder_here(clock))
        clock.pass_by(61)
        first = clock.lock(store)
        second = clock.lock(TakenMeanwhile(remote, first))
        with pytest.raises(IndexBusy, match="started at the same moment"):
            second.__enter__()
        first.check()
        first.__exit__(None, None, None)
        assert not store.exists("run.lock")

    def test_a_late_publication_is_refused(self, remote: str) -> None:
        store = Store(remote)
        with BuildLock(store) as lock:
            before = read_current(store)
            with lock.fenced():
                make_current(store, "of-the-later-build")
                with pytest.raises(IndexBusy, match="another process has written current"):
                    make_current(store, "of-the-stopped-build", before)
            assert current_id(store) == "of-the-later-build"

    def test_a_write_whose_response_was_lost_counts(self, remote: str) -> None:
        class Deaf(Store):
            def replace(self, path: str, data: bytes, version: str | None) -> str | None:
                super().replace(path, data, version)
                return None

        with BuildLock(Deaf(remote)) as lock:
            lock.check()

    @pytest.mark.parametrize(
        ("ignored", "warned"),
        [({"If-None-Match", "If-Match"}, "ignores If-None-Match"), ({"If-Match"}, "ignores If-Match")],
    )
    def test_a_server_without_conditional_puts_is_warned_of(
        self,
        app: S3Server,
        remote: str,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        ignored: set[str],
        warned: str,
    ) -> None:
        monkeypatch.setattr(app, "ignored_conditions", ignored)
        with BuildLock(Store(remote)) as lock:
            lock.check()
        assert warned in caplog.text

    def test_a_server_that_refuses_conditional_puts_is_warned_of(
        self, app: S3Server, remote: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(app, "refuses_conditions", True)
        store = Store(remote)
        with BuildLock(store) as lock:
            with pytest.raises(IndexBusy):
                BuildLock(store).__enter__()
            lock.check()
        assert not store.exists("run.lock")
        assert caplog.text.count("has no conditional puts") == 1

    def test_the_lock_of_a_later_build_is_not_removed_by_one_that_ends_late(self, remote: str) -> None:
        first, second = Clock(), Clock()
        second.pass_by(61)
        later = second.lock(Store(remote))
        store = TakenMeanwhile(remote, None)
        with first.lock(store):
            store.other = later
        assert Store(remote).read_json("run.lock")["beat"] == second.now
        later.check()
        later.__exit__(None, None, None)


class TakenMeanwhile(Store):
    """A store on which another build takes the lock after it was read."""

    def __init__(self, uri: str, other: BuildLock | None) -> None:
        super().__init__(uri)
        self.other = other

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        found = super().read_version(path)
        other, self.other = self.other, None
        if other is not None:
            other.__enter__()
        return found


def race(processes: list[subprocess.Popen[str]], uri: str) -> list[str]:
    """Return the output of two contenders for a lock, that of the holder first, after both have ended."""
    for process in processes:
        print(uri, file=process.stdin, flush=True)
    results = [process.stdout.readline().strip() for process in processes]
    for process in processes:
        print(file=process.stdin, flush=True)
    return sorted(results, key=lambda result: result != "held")


class TestHasEnded:
    @pytest.mark.integration
    def test_elsewhere_it_is_not_known(self) -> None:
        code = "import json, dataclasses as d; from hirag_dist.storage.lock import own_process as o\n"
        code += "print(json.dumps(d.asdict(o())))"
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
        child = HolderProcess(**json.loads(done.stdout))  # it has ended and was reaped
        assert child.has_ended(own_process())
        for field in ("host", "boot", "pid_namespace"):
            for value in ("another", ""):
                assert not replace(child, **{field: value}).has_ended(own_process()), field

    def test_a_process_id_that_was_used_again_is_another_process(self) -> None:
        own = own_process()
        assert not own.has_ended(own)
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


def test_where_the_disk_is_full_the_error_names_the_folders_that_may_go(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, data: bytes, *, durable: bool = True) -> None:
        raise store_error(OSError(errno.ENOSPC, "No space left on device"), "write", path)

    monkeypatch.setattr(store, "write_bytes", full)
    with pytest.raises(StoreError, match=r"the disk is full; .* folders work and cache may be removed by hand"):
        BuildLock(store).__enter__()
