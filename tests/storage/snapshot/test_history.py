"""Since when a snapshot is not current any more."""

from __future__ import annotations

import os
from pathlib import Path

from hirag_dist.storage.layout import CURRENT, HISTORY, MANIFEST, snapshot_path
from hirag_dist.storage.snapshot.history import record_current, remove_from_history, retired_at, rolled_back_to
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store


def live(store: Store, own_id: str, at: float, *, by_hand: bool = False) -> None:
    if by_hand:
        store.write_bytes(CURRENT, own_id.encode())
    else:
        make_current(store, own_id)
        store.write_json(HISTORY, {"history": [*store.read_json(HISTORY)["history"][:-1], [own_id, at]]})
    os.utime(Path(store.root) / CURRENT, (at, at))


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
    live(store, "a", 300.0, by_hand=True)
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


def published(store: Store, *ids: str) -> None:
    for own_id in ids:
        store.write_bytes(f"{snapshot_path(own_id)}/{MANIFEST}", b"{}")


def test_going_back_by_hand_is_seen_and_going_forward_by_a_command_is_not(store: Store) -> None:
    published(store, "a", "b")
    make_current(store, "a")
    make_current(store, "b")
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
