"""An S3 server on loopback for `soak.py` that can be made unreachable and come back with all that it held.

    python -m benchmarks.soak_store PORT

Reads `down` and `up` from its standard input, a word a line, and writes each back when it is done. It ends with its
input.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import BaseWSGIServer, make_server

from tests.storage.s3_server import S3Server


class QuietHandler(MotoRequestHandler):
    """Answers requests and logs none."""

    def log(self, *args: Any) -> None:
        """Log nothing."""


def listening(port: int, app: S3Server) -> tuple[BaseWSGIServer, threading.Thread]:
    """Return a server of the objects of `app`, which answers, and its thread."""
    server = make_server("127.0.0.1", port, app, threaded=True, request_handler=QuietHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return server, thread


def main() -> None:
    port, app = int(sys.argv[1]), S3Server()
    server, thread = listening(port, app)
    print("up", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "down":
            server.shutdown()
            thread.join()
            server.server_close()
        elif word == "up":
            server, thread = listening(port, app)
        print(word, flush=True)


if __name__ == "__main__":
    main()
