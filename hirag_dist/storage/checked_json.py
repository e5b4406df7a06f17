"""JSON files with a checksum: one that is damaged counts as not there, since it can be made again.

The checksum is the first member of the object, over the text of the others. Files without it, of earlier versions, are
read as they are.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Any

from hirag_dist.errors import StoreError
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
_OPENING = b'{"check":"'
_DIGITS = 16
_CLOSING = b'",'


def write_checked(store: Store, path: str, value: Mapping[str, Any]) -> None:
    """Write a JSON object atomically; `Store.sync` makes it durable."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False).encode()
    store.write_bytes(path, _OPENING + _check(text) + _CLOSING + text[1:], durable=False)


def read_checked(store: Store, path: str) -> dict[str, Any] | None:
    """Return a JSON object, None where the file is damaged or not there. Raises StoreError."""
    try:
        data = store.read_bytes(path)
    except StoreError:
        if store.exists(path):
            raise
        return None
    try:
        if data.startswith(_OPENING):
            end = len(_OPENING) + _DIGITS
            given, data = data[len(_OPENING) : end], b"{" + data[end + len(_CLOSING) :]
            if _check(data) != given:
                raise ValueError("its checksum is another one")
        return dict(json.loads(data).items())
    except (ValueError, AttributeError) as error:  # AttributeError: it is no object
        logger.warning("%s/%s is damaged and counts as not there: %s", store.uri, path, error)
        return None


def _check(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:_DIGITS].encode()
