"""Uploads of the web page from a configuration: options of the page, and the task of the process that updates."""

from __future__ import annotations

import base64
import logging
import pickle
import sys

from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError
from hirag_dist.service.web.uploads.options import UploadOptions

_LEVELS = ("", "hirag_dist.service", "hirag_dist.service.web")


def upload_options(config: Config, index: str) -> UploadOptions | None:
    """Return the options of uploads, None where they are off.

    Args:
        index: the index folder; empty for many indexes.

    Raises:
        ConfigError: uploads need the page, and one index in a local folder.
    """
    service = config.service
    if service.http_uploads is None:
        return None
    if service.http is None or not service.http_page:
        raise ConfigError("uploads are on the browser page: give --http HOST:PORT, and leave service.http_page on")
    if not index:
        raise ConfigError("uploads are for one index: give --index URI, and no catalogue")
    labels = service.anonymous_labels
    payload = pickle.dumps((config, {name: logging.getLogger(name).level for name in _LEVELS}))
    return UploadOptions(
        folder=service.http_uploads,
        index=index,
        command=(sys.executable, "-m", "hirag_dist.application.upload_process"),
        payload=base64.b64encode(payload).decode(),
        callers_file=service.callers_file,
        anonymous=None if labels == "all" else frozenset(labels),
        max_file_bytes=config.reading.max_file_bytes,
    )
