"""An S3 server on loopback whose requests are atomic, as those of S3 are.

moto compares the ETag and writes the object in two steps, so that two threads of it can both pass the comparison, and
a read during a write can return part of an object.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from pyarrow import fs
from werkzeug.serving import make_server


class S3Server:
    """A WSGI application in front of moto.

    Attributes:
        delay_s: seconds that the next put of a lock waits before it is handled; 0.0 for none.
        refuses_conditions: whether the server answers that conditional puts are not implemented.
        ignored_conditions: headers of conditional puts that the server drops, such as "If-Match".
        reads: paths of the objects whose content was asked for.
    """

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.refuses_conditions = False
        self.ignored_conditions: set[str] = set()
        self.reads: list[str] = []
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._requests = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT":
            refused = self._before_put(environ, start_response)
            if refused is not None:
                return refused
        if environ["REQUEST_METHOD"] == "GET" and not environ["QUERY_STRING"]:
            self.reads.append(environ["PATH_INFO"])
        with self._requests:
            return list(self._moto(environ, start_response))

    def _before_put(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes] | None:
        """Delay a put, or return the response that refuses it."""
        if environ["PATH_INFO"].endswith("run.lock"):
            delay_s, self.delay_s = self.delay_s, 0.0
            time.sleep(delay_s)
        if self.refuses_conditions and {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"} & environ.keys():
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("501 Not Implemented", [("Content-Type", "application/xml")])
            return [b"<Error><Code>NotImplemented</Code><Message>A header is not implemented</Message></Error>"]
        for header in self.ignored_conditions:
            environ.pop(f"HTTP_{header.upper().replace('-', '_')}", None)
        return None


@contextmanager
def s3_server() -> Iterator[tuple[S3Server, str]]:
    """Yield a server and the URI of a folder in a bucket of it."""
    app = S3Server()
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    options = f"endpoint_override=127.0.0.1:{server.server_port}&scheme=http&region=us-east-1"
    uri = f"s3://key:secret@bucket/some/index?{options}"
    filesystem, _ = fs.FileSystem.from_uri(f"{uri}&allow_bucket_creation=true")
    filesystem.create_dir("bucket")
    try:
        yield app, uri
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
