"""History of the `current` pointer: which snapshot was served since when. `prune` decides by it.

`snapshot_history.json` lists (snapshot id, since), by the store's time of the file `current`. An entry is made when a
snapshot goes live; for a `current` written by hand, when the next snapshot does or when `prune` runs. The file also
names the snapshot that a command made current last: where `current` names an earlier one, it was rolled back by hand.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from hirag_dist.errors import StoreError
from hirag_dist.storage.layout import CURRENT, HISTORY, MANIFEST, pointer_id, snapshot_path
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
_FORMER_HISTORY = "lives.json"  # of indexes built before the file had its present name

History = list[tuple[str, float]]  # (snapshot id, since, in seconds since the epoch), oldest first


def record_current(store: Store, *, made: bool = False) -> History:
    """Add the current snapshot to the history unless it is the last entry; return the history.

    Args:
        made: a command has just made it current; otherwise it may have been written by hand.
    """
    history, last_made = _read(store)
    pointer = store.entries("").get(CURRENT)
    if pointer is None:
        return history
    snapshot_id = pointer_id(store.read_bytes(CURRENT))
    if not snapshot_id:  # damaged
        return history
    new = not history or history[-1][0] != snapshot_id
    if new:
        history.append((snapshot_id, pointer.modified))
    if new or (made and last_made != snapshot_id):
        _write(store, history, snapshot_id if made else last_made)
    return history


def rolled_back_to(store: Store, snapshot_id: str) -> str | None:
    """Return the snapshot to which `current` was rolled back by hand from this one; None without a roll-back.

    A roll-back: a command made this snapshot current last, and `current` names an existing snapshot that was current
    before it.
    """
    history, last_made = _read(store)
    if last_made != snapshot_id or not store.exists(CURRENT):
        return None
    ids = [listed for listed, _ in history]
    now = pointer_id(store.read_bytes(CURRENT))
    earlier = snapshot_id in ids and now in ids[: len(ids) - 1 - ids[::-1].index(snapshot_id)]
    return now if now != snapshot_id and earlier and store.exists(f"{snapshot_path(now)}/{MANIFEST}") else None


def retired_at(store: Store, snapshot_id: str, history: History) -> float | None:
    """Return when a snapshot stopped being current, in seconds since the epoch; None for the current one.

    A snapshot that is not listed was not current since the history begins, and is no older than its manifest.
    """
    positions = [position for position, (listed, _) in enumerate(history) if listed == snapshot_id]
    if positions and positions[-1] == len(history) - 1:
        return None
    if positions:
        return history[positions[-1] + 1][1]
    manifest = store.entries(snapshot_path(snapshot_id)).get(MANIFEST)
    return max([0.0 if manifest is None else manifest.modified, *(since for _, since in history[:1])])


def current_times(store: Store) -> dict[str, float]:
    """Return since when each snapshot was current last, in seconds since the epoch; nothing is written."""
    return dict(_read(store)[0])


def remove_from_history(store: Store, removed: Collection[str]) -> None:
    """Remove snapshots from the history. The entry before a removed one then extends to the next remaining one."""
    history, last_made = _read(store)
    kept = [(listed, since) for listed, since in history if listed not in removed]
    if kept != history:
        _write(store, kept, last_made)


def _read(store: Store) -> tuple[History, str | None]:
    """Return the history, and the snapshot that a command made current last, None where that is unknown."""
    name, key = (HISTORY, "history") if store.exists(HISTORY) else (_FORMER_HISTORY, "lives")
    if not store.exists(name):
        return [], None
    content: Any = None
    try:
        content = store.read_json(name)
        return [(str(listed), float(since)) for listed, since in content[key]], content.get("made_current")
    except (StoreError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s/%s is damaged and is written again: %s", store.uri, name, error)
        return [], None


def _write(store: Store, history: History, last_made: str | None) -> None:
    store.write_json(HISTORY, {"history": history, "made_current": last_made}, compact=True)
