"""Callers that may upload: operators of the callers file, or anybody on this machine without one."""

from __future__ import annotations

from datetime import UTC, datetime

from hirag_dist.errors import HiragError
from hirag_dist.service.auth.caller_registry import Callers, NoCallers, read_callers
from hirag_dist.service.file_watch import Lapse, ReloadingValue
from hirag_dist.service.web.uploads.options import UploadOptions
from hirag_dist.wire.error_status import Unauthenticated


class UploadRefused(HiragError):
    """The caller may not upload."""


class UploadAccess:
    """Decides who may upload.

    With a callers file: a caller with `uploads: true` that sees every document (`labels: all`). Without one the page
    listens on loopback, and documents with labels that hide them from its callers refuse every upload.

    Args:
        options: callers file, anonymous labels and index.

    Raises:
        ConfigError: the callers file is wrong.
    """

    def __init__(self, options: UploadOptions) -> None:
        self._options = options
        path = options.callers_file
        self._callers: ReloadingValue[Callers] | None = None
        if path is not None:
            lapse = Lapse(NoCallers, Callers(), options.callers_grace_s, "no caller may upload")
            self._callers = ReloadingValue([path], lambda: read_callers(path), lapse=lapse)
        self._labelled: tuple[str, bool] = ("", False)  # snapshot, and whether its documents have labels

    def check(self, token: str | None) -> str:
        """Return the name of the caller.

        Reads files: not for an event loop.

        Raises:
            Unauthenticated: the token is unknown or has expired.
            UploadRefused: the caller may not upload.
        """
        if self._callers is None:
            if self._options.anonymous is not None and self._has_labels():
                raise UploadRefused(
                    "documents of this index carry labels, which hide them from callers of this page; uploads need "
                    "a service.callers_file, or service.anonymous_labels: all"
                )
            return "anonymous"
        self._callers.refresh()
        caller, valid = (None, False) if token is None else self._callers.value.of_token(token, datetime.now(UTC))
        if caller is None or not valid:
            raise Unauthenticated("uploads need a bearer token that the service knows; give one under Access")
        if not caller.uploads:
            raise UploadRefused(f"{caller.name} may not upload: the callers file does not say uploads: true")
        if caller.reach is not None:
            raise UploadRefused(f"{caller.name} may not upload: its labels may hide documents from it")
        return caller.name

    def _has_labels(self) -> bool:
        from hirag_dist.storage.snapshot.reader import current_id, open_snapshot  # pyarrow is not for every page
        from hirag_dist.storage.store import Store

        store = Store(self._options.index)
        current = current_id(store) or ""
        if current and current != self._labelled[0]:
            self._labelled = (current, open_snapshot(store, current).has_labels)
        return self._labelled[1]
