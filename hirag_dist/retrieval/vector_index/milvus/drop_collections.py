"""Collections of snapshots that are removed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hirag_dist.config.model import VectorsConfig
from hirag_dist.retrieval.vector_index.milvus.collection import drop, name_prefix
from hirag_dist.retrieval.vector_index.milvus.connection import connect, open_lite, shown, translated
from hirag_dist.storage.store import Store

_COLLECTION_NAME = re.compile(r"hirag_([0-9a-f]+)_")


class MilvusCollections:
    """The collections at one Milvus, to be listed and dropped. A context manager.

    Attributes:
        where: for messages.
    """

    def __init__(self, client: Any, where: str) -> None:
        self.where = where
        self._client = client

    def __enter__(self) -> MilvusCollections:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def of(self, snapshot_ids: Iterable[str]) -> list[str]:
        """Return the collections of snapshots, including incomplete ones.

        Raises:
            BackendUnavailable: Milvus does not answer.
        """
        prefixes = tuple(name_prefix(snapshot_id) for snapshot_id in snapshot_ids)
        return [name for name in self._names() if name.startswith(prefixes)]

    def snapshots(self) -> set[str]:
        """Return the ids of the snapshots that have collections.

        Raises:
            BackendUnavailable: Milvus does not answer.
        """
        return {found[1] for name in self._names() if (found := _COLLECTION_NAME.match(name))}

    def drop(self, name: str) -> None:
        """Remove a collection with its aliases.

        Raises:
            BackendUnavailable: Milvus does not do it.
        """
        with translated(f"drop {name}", self.where):
            drop(self._client, name)

    def _names(self) -> list[str]:
        with translated("list its collections", self.where):
            return sorted(self._client.list_collections())


def server_collections(vectors: VectorsConfig) -> MilvusCollections:
    """Return the collections at the server that is configured.

    Raises:
        BackendUnavailable: it does not answer, or refuses the token.
    """
    token = vectors.token.get_secret_value() if vectors.token else ""
    uri = str(vectors.uri)
    return MilvusCollections(connect(uri, token, vectors.timeout_s), f"Milvus at {shown(uri)}")


def lite_collections(store: Store) -> MilvusCollections | None:
    """Return the collections in the Milvus Lite file of an index, None where there is no file.

    Raises:
        BackendUnavailable: another process owns it.
    """
    if store.local is None or not (store.local / "milvus" / "milvus.db").exists():
        return None
    return MilvusCollections(open_lite(store), "Milvus Lite")
