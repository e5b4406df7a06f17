"""/v1/files: what callers upload for batches and what batches write, kept in a temporary directory."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Protocol, TypeVar

from aiohttp import BodyPartReader, web

from hirag_dist.testing.simulator.openai_schema import ApiError
from hirag_dist.testing.simulator.responses import json_response

FILES = "/v1/files"
MAX_FILE_BYTES = 200 * 1024 * 1024  # OpenAI's, of a batch's input
_PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
_CHUNK_BYTES = 256 * 1024
_PAGE = 10_000


class HasId(Protocol):
    """Object of the API that can be listed."""

    @property
    def id(self) -> str:
        """Identifier in the API."""
        ...

    def body(self) -> dict[str, Any]:
        """Return its object of the API."""
        ...


Item = TypeVar("Item", bound=HasId)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, and where its bytes are."""

    id: str
    filename: str
    purpose: str
    n_bytes: int
    created_at: int
    path: Path

    def body(self) -> dict[str, Any]:
        """Return the API's file object."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.n_bytes,
            "created_at": self.created_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "expires_at": None,
        }


class FileStore:
    """Files by id. Their directory is made with the first and removed by `close`."""

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        self._files: dict[str, StoredFile] = {}

    def begin(self) -> BinaryIO:
        """Return a new file to write; `finish` takes it in. Its name is its path."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="simulate-llm-")
        return (Path(self._folder.name) / uuid.uuid4().hex).open("wb")

    def finish(self, written: BinaryIO, filename: str, purpose: str) -> StoredFile:
        """Close what was written, and keep it."""
        n_bytes = written.tell()
        written.close()
        path = Path(written.name)
        stored = StoredFile(f"file-{path.name}", filename, purpose, n_bytes, int(time.time()), path)
        self._files[stored.id] = stored
        return stored

    def get(self, file_id: str) -> StoredFile:
        """Return a file. Raises ApiError 404."""
        found = self._files.get(file_id)
        if found is None:
            raise ApiError(404, f"No such File object: {file_id}", param="id")
        return found

    def delete(self, file_id: str) -> None:
        """Remove a file. Raises ApiError 404."""
        self.get(file_id).path.unlink()
        del self._files[file_id]

    def every(self) -> Iterable[StoredFile]:
        """Return all files, oldest first."""
        return self._files.values()

    def close(self) -> None:
        """Remove everything."""
        self._files.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class FilesApi:
    """The handlers of /v1/files."""

    def __init__(self, store: FileStore) -> None:
        self._store = store

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.post(FILES, self._upload),
            web.get(FILES, self._list),
            web.get(f"{FILES}/{{id}}", self._retrieve),
            web.get(f"{FILES}/{{id}}/content", self._content),
            web.delete(f"{FILES}/{{id}}", self._delete),
        ]

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        if request.content_type != "multipart/form-data":
            raise ApiError(400, "Upload a file as multipart/form-data with the fields 'purpose' and 'file'.")
        purpose, name = "", "upload"
        written: BinaryIO | None = None
        try:
            async for part in await request.multipart():
                if not isinstance(part, BodyPartReader):
                    continue
                if part.name == "purpose":
                    purpose = (await part.text()).strip()
                elif part.name == "file" and written is None:
                    name = part.filename or name
                    written = self._store.begin()
                    while chunk := await part.read_chunk(_CHUNK_BYTES):
                        written.write(chunk)
                        if written.tell() > MAX_FILE_BYTES:
                            raise ApiError(413, f"The file is larger than {MAX_FILE_BYTES} bytes.", param="file")
            if written is None:
                raise ApiError(400, "Missing required parameter: 'file'.", "missing_required_parameter", "file")
            if purpose not in _PURPOSES:
                said = f"'{purpose}' is not one of {list(_PURPOSES)} - 'purpose'"
                raise ApiError(400, said, "invalid_value", "purpose")
        except BaseException as error:
            if written is not None:
                written.close()
                Path(written.name).unlink()
            if isinstance(error, ValueError):
                raise ApiError(400, f"The multipart body cannot be read: {error}") from error
            raise
        return json_response(self._store.finish(written, name, purpose).body())

    async def _list(self, request: web.Request) -> web.StreamResponse:
        wanted = request.query.get("purpose")
        files = [file for file in self._store.every() if wanted in (None, file.purpose)]
        if request.query.get("order") != "asc":
            files.reverse()
        return json_response(page_of(files, request.query, _PAGE, _PAGE))

    async def _retrieve(self, request: web.Request) -> web.StreamResponse:
        return json_response(self._store.get(request.match_info["id"]).body())

    async def _content(self, request: web.Request) -> web.StreamResponse:
        found = self._store.get(request.match_info["id"])
        return web.FileResponse(found.path, headers={"Content-Type": "application/octet-stream"})

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        file_id = request.match_info["id"]
        self._store.delete(file_id)
        return json_response({"id": file_id, "object": "file", "deleted": True})


def page_of(items: Sequence[Item], query: Mapping[str, str], default: int, most: int) -> dict[str, Any]:
    """Return a page of a list: `limit` items, those behind the one that `after` names. Raises ApiError 400."""
    asked = query.get("limit", str(default))
    if not asked.isdecimal() or not 1 <= int(asked) <= most:
        raise ApiError(400, f"Invalid 'limit': a whole number from 1 to {most}.", "invalid_value", "limit")
    start, after = 0, query.get("after")
    if after is not None:
        places = [place for place, item in enumerate(items) if item.id == after]
        if not places:
            raise ApiError(400, f"Invalid 'after': nothing here has the id {after}.", "invalid_value", "after")
        start = places[0] + 1
    shown = items[start : start + int(asked)]
    return {
        "object": "list",
        "data": [item.body() for item in shown],
        "first_id": shown[0].id if shown else None,
        "last_id": shown[-1].id if shown else None,
        "has_more": start + len(shown) < len(items),
    }
