"""Old snapshots are removed with everything derived from them; those that may be in use stay."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from hirag_dist.errors import IndexBusy, SnapshotNotFound
from hirag_dist.storage.layout import BUILD, CURRENT, HISTORY, MANIFEST, snapshot_path
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.gc import GcPlan, RetentionPolicy, collections_of, plan_gc, prune
from hirag_dist.storage.snapshot.history import record_current, remove_from_history, retired_at, rolled_back_to
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store
from tests.mortal_store import Killed
from tests.storage import snapshots

DAY = 86_400.0
BEGIN = 1_700_000_000.0


class Shelf:
    """Collections in memory; the process may end before it drops one."""

    where = "a shelf"

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.kept: list[str] = []
        self.dies = False

    def of(self, snapshot_ids: Sequence[str]) -> list[str]:
        return sorted(name for name in self.names if name.partition("_")[0] in snapshot_ids)

    def snapshots(self) -> set[str]:
        return {name.partition("_")[0] for name in self.names}

    def drop(self, names: Sequence[str], kept: Callable[[], Iterable[Snapshot]]) -> None:
        if self.dies:
            raise Killed
        self.kept = [each.manifest.snapshot_id for each in kept()]
        self.names -= set(names)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[str]]:
    """Five snapshots that went live a day after another, the last one four days after BEGIN."""
    store, made = Store(str(tmp_path_factory.mktemp("five"))), []
    for day in range(5):
        made.append(snapshots.publish(store, snapshots.tiny_tables(f" On day {day}."), live=False).snapshot_id)
        live(store, made[-1], BEGIN + day * DAY)
    return store, made


@pytest.fixture
def ids(five: tuple[Store, list[str]], store: Store) -> list[str]:
    """The five snapshots, in the store of the test."""
    shutil.copytree(five[0].root, store.root)
    return five[1]


def went_live(store: Store, at: float) -> None:
    os.utime(Path(store.root) / CURRENT, (at, at))


def planned(store: Store, keep: int = 0, days: float = 1.0, today: float = 5.0) -> GcPlan:
    return plan_gc(store, RetentionPolicy(keep, days * DAY), BEGIN + today * DAY)


def going(store: Store, **rule: float) -> list[str]:
    return [one.snapshot_id for one in planned(store, **rule).snapshots]


def carry_out(store: Store, plan: GcPlan, shelf: Shelf) -> None:
    with BuildLock(store) as lock:
        prune(store, lock, plan, [(shelf, collections_of(plan, shelf, shared=True))])


def test_what_has_not_been_current_for_long_goes(store: Store, ids: list[str]) -> None:
    assert going(store) == ids[:4]
    assert going(store, days=1.5) == ids[:3]
    assert going(store, keep=1) == ids[:3], "the one before the current one, to go back to"
    assert going(store, keep=9) == []
    assert going(store, days=0, today=4.0) == ids[:4], "the current one stays, whatever the rule"


def test_the_snapshot_of_the_last_build_stays(store: Store, ids: list[str]) -> None:
    store.write_json(BUILD, {"snapshot": ids[1]})
    assert going(store) == [ids[0], *ids[2:4]]
    store.write_bytes(BUILD, b"{")
    assert going(store) == ids[:4]


def test_one_that_was_made_current_by_hand_stays(store: Store, ids: list[str]) -> None:
    store.write_bytes(CURRENT, ids[1].encode())
    went_live(store, BEGIN + 4.5 * DAY)
    assert going(store) == [ids[0], *ids[2:4]], "and the one before it has not been away for a day"


def test_where_none_is_served_nothing_goes(store: Store, ids: list[str]) -> None:
    store.write_bytes(CURRENT, b"another")
    with pytest.raises(SnapshotNotFound, match="none is removed"):
        going(store)
    store.delete(CURRENT)
    with pytest.raises(SnapshotNotFound, match="none is removed"):
        going(store)


def test_all_that_was_made_from_a_snapshot_goes_with_it(store: Store, ids: list[str]) -> None:
    for name in (*ids, "0" * 16):
        store.write_bytes(f"cache/{name}/serving-2/entities.arrow", b"derived")
        store.write_bytes(f"cache/.{name}.lock", b"")
    shelf = Shelf(f"{ids[0]}_1", f"{ids[0]}_2", f"{ids[1]}_1", f"{ids[4]}_1", "another_1")
    plan = planned(store, keep=2)
    assert [one.snapshot_id for one in plan.snapshots] == ids[:2]
    in_folder = sum(file.stat().st_size for file in (Path(store.root) / snapshot_path(ids[0])).rglob("*.*"))
    assert plan.snapshots[0].size_bytes == in_folder + len("derived")
    assert store.names("snapshots") == sorted(ids), "a plan removes nothing"
    carry_out(store, plan, shelf)
    assert shelf.names == {f"{ids[4]}_1", "another_1"}
    assert sorted(shelf.kept) == sorted(ids[2:]), "what these need of a shared collection stays"
    assert store.names("snapshots") == sorted(ids[2:])
    assert store.names("cache") == sorted([*ids[2:], *(f".{own_id}.lock" for own_id in ids[2:])])
    assert open_snapshot(store, full_check=True).manifest.snapshot_id == ids[4]
    assert going(store, keep=2) == []
    assert going(store) == ids[2:4]


def test_what_a_killed_run_left_goes_with_the_next(store: Store, ids: list[str]) -> None:
    shelf = Shelf(f"{ids[0]}_1")
    shelf.dies = True
    with pytest.raises(Killed):
        carry_out(store, planned(store, keep=3), shelf)
    assert not store.exists(f"{snapshot_path(ids[0])}/{MANIFEST}"), "nobody opens what is half removed"
    shelf.dies = False
    plan = planned(store, keep=9)
    assert [(one.snapshot_id, one.retired_at) for one in plan.snapshots] == [(ids[0], None)]
    carry_out(store, plan, shelf)
    assert shelf.names == set()
    assert store.names("snapshots") == sorted(ids[1:])


def test_what_is_no_snapshot_stays(store: Store, ids: list[str]) -> None:
    for path in ("snapshots/photos/p.jpg", "snapshots/copy/manifest.json", "cache/pip/c"):
        store.write_bytes(path, b"x")
    store.write_bytes(f"snapshots/{'0' * 16}/entities.parquet", b"of a killed build")
    store.write_bytes(f"cache/{ids[0]}-0123abcd/a", b"derived")
    carry_out(store, planned(store), Shelf())
    assert store.names("snapshots") == sorted([ids[4], "copy", "photos"])
    assert store.names("cache") == ["pip"]


def test_one_that_goes_live_meanwhile_stays(store: Store, ids: list[str]) -> None:
    plan = planned(store, keep=3)
    store.write_bytes(CURRENT, ids[0].encode())
    shelf = Shelf(f"{ids[0]}_1")
    with pytest.raises(IndexBusy, match="went live meanwhile"):
        carry_out(store, plan, shelf)
    assert open_snapshot(store, full_check=True).manifest.snapshot_id == ids[0]
    assert shelf.names


def test_a_file_that_snapshots_share_is_freed_with_the_last_of_them(store: Store, ids: list[str]) -> None:
    folders = [Path(store.root) / snapshot_path(own) for own in ids]
    sizes = [sum(file.stat().st_size for file in folder.rglob("*.*")) for folder in folders]
    for name, last in (("shared-1", 3), ("shared-2", 5)):  # by the first three, and by all
        (folders[0] / name).write_bytes(b"0" * 1000)
        for folder in folders[1:last]:
            os.link(folders[0] / name, folder / name)
    assert [one.size_bytes for one in planned(store, days=0).snapshots] == [
        sizes[0],
        sizes[1],
        sizes[2] + 1000,
        sizes[3],
    ]


def live(store: Store, own_id: str, at: float) -> None:
    make_current(store, own_id)
    store.write_json(HISTORY, {"history": [*store.read_json(HISTORY)["history"][:-1], [own_id, at]]})
    went_live(store, at)


def ends(store: Store, *ids: str) -> list[float | None]:
    lives = record_current(store)
    return [retired_at(store, own_id, lives) for own_id in ids]


def test_a_snapshot_ends_when_the_next_one_goes_live(store: Store) -> None:
    for at, own_id in enumerate("abc"):
        live(store, own_id, 100.0 * at)
    make_current(store, "c")  # again: it has been current since 200
    assert ends(store, "a", "b", "c") == [100.0, 200.0, None]


def test_what_somebody_wrote_by_hand_counts(store: Store) -> None:
    live(store, "a", 100.0)
    live(store, "b", 200.0)
    store.write_bytes(CURRENT, b"a")
    went_live(store, 300.0)
    assert ends(store, "a", "b") == [None, 300.0]
    live(store, "c", 400.0)
    assert ends(store, "a", "b", "c") == [400.0, 300.0, None]


def test_who_is_forgotten_shortens_no_other_ones_life(store: Store) -> None:
    for at, own_id in enumerate("abcd"):
        live(store, own_id, 100.0 * at)
    record_current(store)
    remove_from_history(store, {"b"})
    assert store.read_json(HISTORY)["history"] == [["a", 0.0], ["c", 200.0], ["d", 300.0]]
    assert ends(store, "a", "c", "d") == [200.0, 300.0, None]


def test_a_damaged_list_keeps_nothing_from_going_live(store: Store) -> None:
    live(store, "a", 100.0)
    for damaged in (b"{", b"[1]", b'{"history": [["a"]]}', b'{"history": 7}'):
        store.write_bytes(HISTORY, damaged)
        assert ends(store, "a") == [None]
        live(store, "b", 200.0)
        assert ends(store, "a", "b") == [200.0, None]
        live(store, "a", 100.0)


def test_going_back_by_hand_is_seen_and_going_forward_by_a_command_is_not(store: Store) -> None:
    for own_id in "ab":
        store.write_bytes(f"{snapshot_path(own_id)}/{MANIFEST}", b"{}")
        make_current(store, own_id)
    assert rolled_back_to(store, "b") is None
    store.write_bytes(CURRENT, b"a\n")
    assert rolled_back_to(store, "b") == "a"
    assert rolled_back_to(store, "c") is None  # a snapshot that was not rolled back
    record_current(store)  # as `prune` does
    assert rolled_back_to(store, "b") == "a"
    remove_from_history(store, {"x"})
    assert rolled_back_to(store, "b") == "a"
    make_current(store, "b")  # forward again
    make_current(store, "a")  # a build of what there was before: not by hand
    assert rolled_back_to(store, "b") is None
