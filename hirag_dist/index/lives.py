"""Since when a snapshot is not the one being served any more: what says whether it may be removed.

`lives.json` lists which snapshot has been current since when, by the time of the file `current`. An entry is made when
one goes live, and for a `current` that somebody wrote by hand when the next one does or `prune` looks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from hirag_dist.errors import StoreError
from hirag_dist.index.layout import CURRENT, LIVES, MANIFEST, snapshot_path
from hirag_dist.index.store import Store

log = logging.getLogger(__name__)


def note_current(store: Store) -> list[tuple[str, float]]:
    """See that the list ends with the snapshot that is current; return it: (id, since, in seconds since the epoch)."""
    lives = _read(store)
    found = store.entries("").get(CURRENT)
    if found is None:
        return lives
    own_id = store.read_bytes(CURRENT).decode("utf-8", "replace").strip()
    if not lives or lives[-1][0] != own_id:
        lives.append((own_id, found.modified))
        _write(store, lives)
    return lives


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


def forget(store: Store, gone: Collection[str]) -> None:
    """Take snapshots that are removed out of the list. One that is left then counts as current until the next one."""
    lives = _read(store)
    kept = [(own, since) for own, since in lives if own not in gone]
    if kept != lives:
        _write(store, kept)


def _read(store: Store) -> list[tuple[str, float]]:
    if not store.exists(LIVES):
        return []
    found: Any = None
    try:
        found = store.read_json(LIVES)
        return [(str(own), float(since)) for own, since in found["lives"]]
    except (StoreError, KeyError, TypeError, ValueError) as error:
        log.warning("%s/%s is damaged and begun anew: %s", store.uri, LIVES, error)
        return []


def _write(store: Store, lives: list[tuple[str, float]]) -> None:
    store.write_json(LIVES, {"lives": lives}, compact=True)
