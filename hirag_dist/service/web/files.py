"""The page's static files: read once, sent with an ETag so that a browser loads each version once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

from aiohttp import web

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page."""

    body: bytes
    content_type: str
    tag: str

    def response(self, request: web.Request) -> web.Response:
        """Return the file, or 304 if the browser has it."""
        quoted = f'"{self.tag}"'
        headers = {"ETag": quoted, "Cache-Control": "no-cache"}  # cached, with a check at each use
        if quoted in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        return web.Response(body=self.body, content_type=self.content_type, charset="utf-8", headers=headers)


def read_files() -> dict[str, StaticFile]:
    """Return the files by name; index.html is the page."""
    files: dict[str, StaticFile] = {}
    for entry in resources.files("hirag_dist.service.web").joinpath("static").iterdir():
        kind = _TYPES.get(entry.name[entry.name.rfind(".") :])
        if kind is not None:
            body = entry.read_bytes()
            files[entry.name] = StaticFile(body, kind, hashlib.sha256(body).hexdigest()[:16])
    return files
