"""HTTP requests of uploads: each is checked for its caller, and answered with the state of the upload."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from hirag_dist.client import DeadlinePassed
from hirag_dist.errors import HiragError, InvalidQuery
from hirag_dist.service.auth.caller_registry import Callers, NoCallers, read_callers
from hirag_dist.service.file_watch import Lapse, ReloadingValue
from hirag_dist.service.web.json_lines import error_body, read_body
from hirag_dist.service.web.options import UploadOptions
from hirag_dist.service.web.request_checks import Handler
from hirag_dist.service.web.uploads.job import UploadConflict, UploadJob, readable
from hirag_dist.wire.error_status import Unauthenticated

logger = logging.getLogger(__name__)
FILE_NAME = "X-File-Name"
_NAME_CHARS = 3000  # percent-encoded


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


class _Start(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    plan_id: str
    max_usd: float | None = Field(None, ge=0, allow_inf_nan=False, strict=False)


class UploadRoutes:
    """The requests of uploads. An async context manager: while it is open, it owns the uploads folder.

    Args:
        options: folder, limits and access.

    Raises:
        ConfigError: on entering, when the folder or the callers file cannot be used.
    """

    def __init__(self, options: UploadOptions) -> None:
        self._options = options
        self._job: UploadJob | None = None
        self._access: UploadAccess | None = None

    async def __aenter__(self) -> UploadRoutes:
        self._access = UploadAccess(self._options)
        self._job = UploadJob(self._options)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._job is not None:
            await self._job.close()
            self._job = None

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        handlers = {
            "state": self._state,
            "file": self._file,
            "plan": self._plan,
            "start": self._start,
            "cancel": self._cancel,
            "discard": self._discard,
        }
        for name, handler in handlers.items():
            router.add_post(f"/api/upload/{name}", partial(self._answer, handler))

    async def _answer(self, handler: Handler, request: web.Request) -> web.StreamResponse:
        """Check the caller, do what was asked, and reply with the state."""
        assert self._access is not None
        try:
            caller = await asyncio.to_thread(self._access.check, _token(request))
            if handler != self._state:
                logger.info("upload: %s by %s", request.path.rpartition("/")[2], caller)
            return await handler(request)
        except UploadRefused as error:
            return web.json_response(error_body(error), status=403)
        except UploadConflict as error:
            return web.json_response(error_body(error), status=409)

    @property
    def _upload(self) -> UploadJob:
        assert self._job is not None, "requests come while it is open"
        return self._job

    async def _state(self, request: web.Request) -> web.StreamResponse:
        options = self._options
        limits = {"bytes": options.max_bytes, "file_bytes": options.max_file_bytes, "files": options.max_files}
        return _reply(self._upload.status() | {"limits": limits, "types": readable()})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        given = request.headers.get(FILE_NAME, "")
        if not given or len(given) > _NAME_CHARS:
            raise InvalidQuery(f"{FILE_NAME} is the name of the file, percent-encoded")
        await self._upload.receive(unquote(given, errors="replace"), self._chunks(request))
        return _reply(self._upload.status())

    async def _plan(self, request: web.Request) -> web.StreamResponse:
        self._upload.plan()
        return _reply(self._upload.status())

    async def _start(self, request: web.Request) -> web.StreamResponse:
        wanted = read_body(_Start, await request.read())
        self._upload.start(wanted.plan_id, wanted.max_usd)
        return _reply(self._upload.status())

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        self._upload.cancel()
        return _reply(self._upload.status())

    async def _discard(self, request: web.Request) -> web.StreamResponse:
        self._upload.discard()
        return _reply(self._upload.status())

    async def _chunks(self, request: web.Request) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            DeadlinePassed: nothing arrives any more.
        """
        while True:
            try:
                async with asyncio.timeout(self._options.stall_s):
                    chunk = await request.content.readany()
            except TimeoutError as error:
                raise DeadlinePassed(f"nothing of the file arrived for {self._options.stall_s:g} s") from error
            if not chunk:
                return
            yield chunk


def _token(request: web.Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _reply(status: dict[str, Any]) -> web.Response:
    return web.json_response(status)
