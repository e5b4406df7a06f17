"""Claims of work at a server: one process does it, the others wait for its end or take over from a dead one.

A claim is an alias of a collection of the claimant, which only one process can create: Milvus refuses an alias of
another collection, but not the same one twice. Its owner shows heartbeats by changing further aliases of that
collection.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hirag_dist.retrieval.vector_index.milvus.collection import aliases, drop, drop_alias, has_snapshot, resolved

logger = logging.getLogger(__name__)
_BEAT_S = 5.0
_DEAD_S = 60.0  # without a beat
_POLL_S = 1.0


class Claim:
    """A claim of one process among those that would do the same.

    Attributes:
        beat_s: seconds between two heartbeats.
    """

    def __init__(
        self,
        client: Any,
        alias: str,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        beat_s: float = _BEAT_S,
    ) -> None:
        """Prepare a claim. The clock `now` and the sleep `pause` are in seconds."""
        self.beat_s = beat_s
        self._client = client
        self._alias = alias
        self._now = now
        self._pause = pause
        self._collection = ""
        self._beat = ""

    def taken(self, collection: str = "", *, last: bool = False) -> bool:
        """Return whether this process got the claim; with `last`, raise the refusal of Milvus instead.

        Args:
            collection: one that this process has created for the work; by default an empty one is created.
            last: whether this is the last attempt.
        """
        from pymilvus import DataType, MilvusException

        if not collection:
            self._collection = f"{self._alias}_{uuid.uuid4().hex[:12]}"
            schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("key", DataType.INT64, is_primary=True)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)
            self._client.create_collection(self._collection, schema=schema)
        else:
            self._collection = collection
        try:
            self._client.create_alias(self._collection, self._alias)
        except MilvusException:
            if not collection:
                self._client.drop_collection(self._collection)
            if last:
                raise
            return False
        return True

    def wait(self) -> None:
        """Return when no other process has the claim: it has ended, or has no heartbeat any more.

        The collection of a dead process is dropped unless a snapshot needs it.
        """
        logger.info("another process works on %s: waiting for it", self._alias)
        last_sign: object = None
        since = self._now()
        while claimed := resolved(self._client, self._alias):
            sign = claimed, *sorted(aliases(self._client, claimed))
            if sign != last_sign:
                last_sign, since = sign, self._now()
            elif self._now() - since > _DEAD_S:
                logger.warning("the process that worked on %s has stopped: continuing its work", self._alias)
                if not has_snapshot(self._client, claimed):
                    drop(self._client, claimed)
                drop_alias(self._client, self._alias)
                return
            self._pause(_POLL_S)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Show heartbeats from a thread, since one call of Milvus may take minutes; release the claim in the end."""
        ended = threading.Event()
        beats = threading.Thread(target=self._beat_until, args=(ended,), name="milvus-beat", daemon=True)
        beats.start()
        try:
            yield
        finally:
            ended.set()
            beats.join()
            drop_alias(self._client, self._alias)
            for alias in aliases(self._client, self._collection):
                if _is_beat(alias, self._collection):  # the last, and one whose drop failed earlier
                    drop_alias(self._client, alias)
            if self._collection.startswith(f"{self._alias}_"):
                self._client.drop_collection(self._collection)

    def _beat_until(self, ended: threading.Event) -> None:
        import grpc
        from pymilvus import MilvusException

        collection = self._collection
        while not ended.wait(self.beat_s):
            before, beat = self._beat, f"{collection}_{uuid.uuid4().hex[:8]}"
            try:
                self._client.create_alias(collection, beat)
            except (MilvusException, grpc.RpcError) as error:  # the work reports the error if it is affected
                logger.debug("no heartbeat for %s: %s", collection, error)
                continue
            self._beat = beat
            if before:
                drop_alias(self._client, before)


def _is_beat(alias: str, collection: str) -> bool:
    """Return whether an alias is a heartbeat of a claim.

    >>> _is_beat("rows_0a1b2c3d", "rows"), _is_beat("rows_extending", "rows")
    (True, False)
    """
    return re.fullmatch(rf"{re.escape(collection)}_[0-9a-f]{{8}}", alias) is not None
