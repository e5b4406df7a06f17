"""Removal of snapshots from Milvus: their names, collections without a snapshot, rows that no other snapshot needs."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import VectorsConfig
from hirag_dist.errors import SnapshotError
from hirag_dist.retrieval.vector_index.milvus.claim import Claim
from hirag_dist.retrieval.vector_index.milvus.collection import (
    BEGUN,
    SnapshotRows,
    aliases,
    drop,
    drop_alias,
    has_snapshot,
    labelled_rows,
    list_keys,
    name_prefix,
    resolved,
    snapshot_of,
)
from hirag_dist.retrieval.vector_index.milvus.connection import TIMEOUT_S, connect, open_lite, shown, translated
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
_NAME = re.compile(r"hirag_([0-9a-f]+)_")
_REMOVED = "_removed"  # ends the alias of a snapshot whose rows are being deleted
_SUFFIXES = ("", _REMOVED, BEGUN)  # of the aliases of a snapshot
_DELETED_ROWS = 10_000  # of one request


class MilvusCollections:
    """The collections at one Milvus, to be listed and dropped. A context manager.

    Raises:
        BackendUnavailable: from every call: Milvus does not answer.
    """

    def __init__(self, client: Any, where: str, *, lite: bool = False) -> None:
        """Take over a `MilvusClient`, of a Lite file or of a server."""
        self.where = where
        self._client = client
        self._lite = lite

    def __enter__(self) -> MilvusCollections:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def of(self, snapshot_ids: Iterable[str]) -> list[str]:
        """Return the names of snapshots in Milvus, and of incomplete collections that were begun for them."""
        prefixes = tuple(name_prefix(snapshot_id) for snapshot_id in snapshot_ids)
        return [name for name in self._names() if name.startswith(prefixes)]

    def snapshots(self) -> set[str]:
        """Return the ids of the snapshots that have names or incomplete collections in Milvus."""
        return {found[1] for name in self._names() if (found := _NAME.match(name))}

    def unneeded_rows(self, snapshots: Sequence[Snapshot]) -> dict[str, int]:
        """Return the collections of snapshots with rows that none of them needs, and the number of these rows."""
        opened = {each.manifest.snapshot_id: each for each in snapshots}
        found: dict[str, int] = {}
        with translated("list the rows of its collections", self.where):
            for collection in filter(_NAME.match, self._client.list_collections()):
                users = {snapshot_of(alias) for alias in aliases(self._client, collection)} & opened.keys()
                if users:
                    n_rows = len(self._unneeded(collection, opened))
                    found |= {collection: n_rows} if n_rows else {}
        return found

    def drop(self, names: Sequence[str], kept: Callable[[], Iterable[Snapshot]]) -> None:
        """Remove names that `of` returned. A collection that no snapshot needs is dropped with its last name.

        Of a collection that kept snapshots need the other rows are deleted, unless it has rows of an unknown snapshot,
        such as one of a copy of the index, or a kept one cannot be read. The names of the removed snapshots are changed
        first and dropped with their rows, so that an interrupted removal is repeated and nothing opens what lacks rows.

        Args:
            names: of the snapshots to remove.
            kept: opens all snapshots that stay.
        """
        with translated("drop collections", self.where):
            shared = set()
            for name in names:
                collection = resolved(self._client, name)
                if collection:
                    shared.add(collection)
                    self._rename(name, collection)
                else:
                    drop(self._client, name)
            snapshots: dict[str, Snapshot] | None = None
            for collection in sorted(shared):
                if not has_snapshot(self._client, collection):
                    drop(self._client, collection)
                    continue
                if snapshots is None:
                    snapshots = {each.manifest.snapshot_id: each for each in _opened(kept)}
                if self._delete_rows(collection, snapshots):
                    for alias in aliases(self._client, collection):
                        if alias.endswith(_REMOVED):
                            drop_alias(self._client, alias)

    def _rename(self, name: str, collection: str) -> None:
        """Let the alias of a removed snapshot say that its rows are to be deleted."""
        removed = f"{name.removesuffix(_REMOVED).removesuffix(BEGUN)}{_REMOVED}"
        if removed != name:
            drop_alias(self._client, removed)
            self._client.create_alias(collection, removed)
            drop_alias(self._client, name)

    def _delete_rows(self, collection: str, kept: dict[str, Snapshot]) -> bool:
        """Delete the rows that no kept snapshot needs; return False where they must stay."""
        claim = Claim(self._client, f"{collection}_extending")
        while not claim.taken():
            claim.wait()
        with claim.held():
            users = {snapshot_id for alias in aliases(self._client, collection) if (snapshot_id := snapshot_of(alias))}
            if not users <= kept.keys():
                logger.info("collection %s keeps its rows: other snapshots may need them", collection)
                return False
            unneeded = self._unneeded(collection, kept)
            for first in range(0, len(unneeded), _DELETED_ROWS):
                self._client.delete(collection, ids=unneeded[first : first + _DELETED_ROWS].tolist())
            logger.info("deleted %d rows of collection %s", len(unneeded), collection)
            return True

    def _unneeded(self, collection: str, snapshots: Mapping[str, Snapshot]) -> NDArray[np.int64]:
        """Return the keys of the rows of a collection that none of some snapshots, given by id, needs."""
        self._client.load_collection(collection)
        needed = [SnapshotRows(each, labelled_rows(each)).keys for each in snapshots.values()]
        return np.setdiff1d(list_keys(self._client, collection, lite=self._lite), np.concatenate(needed))

    def _names(self) -> list[str]:
        """Return the aliases with a snapshot's id, and the collections that no alias names so."""
        names: list[str] = []
        with translated("list its collections", self.where):
            for collection in filter(_NAME.match, self._client.list_collections()):
                own = [
                    alias
                    for alias in aliases(self._client, collection)
                    if any(alias.endswith(end) and snapshot_of(alias.removesuffix(end)) for end in _SUFFIXES)
                ]
                names += own or [collection]
        return sorted(names)


def _opened(kept: Callable[[], Iterable[Snapshot]]) -> list[Snapshot]:
    """Return the snapshots that stay; none where one of them cannot be read, so that no row is deleted."""
    try:
        return list(kept())
    except SnapshotError as error:
        logger.warning("rows of removed snapshots stay in shared collections: %s", error)
        return []


def server_collections(vectors: VectorsConfig) -> MilvusCollections:
    """Return the collections at the server that is configured.

    Raises:
        BackendUnavailable: it does not answer, or refuses the token.
    """
    token = vectors.token.get_secret_value() if vectors.token else ""
    uri = str(vectors.uri)
    return MilvusCollections(connect(uri, token, TIMEOUT_S), f"Milvus at {shown(uri)}")


def lite_collections(store: Store) -> MilvusCollections | None:
    """Return the collections in the Milvus Lite file of an index, None where there is no file.

    Raises:
        BackendUnavailable: another process owns it.
    """
    if store.local is None or not (store.local / "milvus" / "milvus.db").exists():
        return None
    return MilvusCollections(open_lite(store), "Milvus Lite", lite=True)
