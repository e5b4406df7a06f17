"""Since when a snapshot is not the one being served any more: what says whether it may be removed.

`lives.json` lists which snapshot has been current since when, by the time of the file `current`. An entry is made when
one goes live, and for a `current` that somebody wrote by hand when the next one does or `prune` looks. Which one a
command of this program made current last is noted too: where `current` names an earlier one, somebody went back to it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from hirag_dist.errors import StoreError
from hirag_dist.storage.layout import CURRENT, LIVES, MANIFEST, snapshot_path
from hirag_dist.storage.store import Store

log = logging.getLogger(__name__)


def note_current(store: Store, *, made: bool = False) -> list[tuple[str, float]]:
    """See that the list ends with the snapshot that is current; return it: (id, since, in seconds since the epoch).

    Args:
        made: it has just been made current by a command, and not by hand.
    """
    lives, last_made = _read(store)
    found = store.entries("").get(CURRENT)
    if found is None:
        return lives
    own_id = _current(store)
    new = not lives or lives[-1][0] != own_id
    if new:
        lives.append((own_id, found.modified))
    if new or (made and last_made != own_id):
        _write(store, lives, own_id if made else last_made)
    return lives


def rolled_back_to(store: Store, own_id: str) -> str | None:
    """Return the snapshot that somebody went back to, by hand, from this one; None where nobody did.

    It is the current one, is there, and was current before a command last made one so, which was this one.
    """
    lives, last_made = _read(store)
    if last_made != own_id or not store.exists(CURRENT):
        return None
    ids = [own for own, _ in lives]
    now = _current(store)
    earlier = own_id in ids and now in ids[: len(ids) - 1 - ids[::-1].index(own_id)]
    return now if now != own_id and earlier and store.exists(f"{snapshot_path(now)}/{MANIFEST}") else None


def retired_at(store: Store, own_id: str, lives: list[tuple[str, float]]) -> float | None:
    """Return when a snapshot stopped being current, in seconds since the epoch; None for the one that is.

    One that was never noted has not been current since the list begins, and is no older than its manifest.

    Args:
        lives: as `note_current` gave it.
    """
    places = [place for place, (own, _) in enumerate(lives) if own == own_id]
    if places and places[-1] == len(lives) - 1:
        return None
    if places:
        return lives[places[-1] + 1][1]
    manifest = store.entries(snapshot_path(own_id)).get(MANIFEST)
    return max([0.0 if manifest is None else manifest.modified, *(since for _, since in lives[:1])])


def remove_from_history(store: Store, gone: Collection[str]) -> None:
    """Take snapshots that are removed out of the list. One that is left then counts as current until the next one."""
    lives, last_made = _read(store)
    kept = [(own, since) for own, since in lives if own not in gone]
    if kept != lives:
        _write(store, kept, last_made)


def _current(store: Store) -> str:
    return store.read_bytes(CURRENT).decode("utf-8", "replace").strip()


def _read(store: Store) -> tuple[list[tuple[str, float]], str | None]:
    """Return the list, and which snapshot a command made current last, None where that is not known."""
    if not store.exists(LIVES):
        return [], None
    found: Any = None
    try:
        found = store.read_json(LIVES)
        return [(str(own), float(since)) for own, since in found["lives"]], found.get("made_current")
    except (StoreError, KeyError, TypeError, ValueError) as error:
        log.warning("%s/%s is damaged and begun anew: %s", store.uri, LIVES, error)
        return [], None


def _write(store: Store, lives: list[tuple[str, float]], last_made: str | None) -> None:
    store.write_json(LIVES, {"lives": lives, "made_current": last_made}, compact=True)
