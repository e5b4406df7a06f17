"""Reading a record of a build; a damaged one counts as not there."""

from __future__ import annotations

import json
import logging
from typing import Any

from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)


def read_record(store: Store, path: str) -> dict[str, Any] | None:
    """Return a record, None where there is none or it is damaged.

    Raises:
        StoreError: it cannot be read.
    """
    if not store.exists(path):
        return None
    try:
        record = json.loads(store.read_bytes(path))
        return record if "state" in record and "started_at" in record else None
    except (TypeError, ValueError) as error:
        logger.warning("%s/%s is damaged and counts as not there: %s", store.uri, path, error)
        return None
