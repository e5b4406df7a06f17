"""The synchronous client: the asynchronous one in a thread with an event loop."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any, Self

from hirag_dist._loop_thread import LoopThread, call, stream
from hirag_dist.client.asynchronous import AsyncHiragClient
from hirag_dist.wire.addresses import DEFAULT_LISTEN


class HiragClient:
    """Client of a running service; usable from several threads, and as a context manager.

    Calls, options and errors are those of `AsyncHiragClient`.

    Args:
        target: HOST:PORT, http://HOST:PORT, or https://HOST:PORT with TLS.
        options: fields of `ClientOptions`: token or token_file, root_certificates, certificate, key, timeout_s, …
    """

    def __init__(self, target: str = DEFAULT_LISTEN, **options: Any) -> None:
        async def client() -> AsyncHiragClient:
            return AsyncHiragClient(target, **options)

        self._loop = LoopThread("hirag-dist-client", lambda: RuntimeError("this client is closed; make another"))
        weakref.finalize(self, self._loop.close)  # also at the end of the process
        self._inner = self._loop.run(client())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Calls in progress end with ServiceError."""
        if self._loop.running:
            self._loop.run(self._inner.close())
            self._loop.close()

    retrieve = call(AsyncHiragClient.retrieve)
    retrieve_stream = stream(AsyncHiragClient.retrieve_stream)
    answer = call(AsyncHiragClient.answer)
    answer_stream = stream(AsyncHiragClient.answer_stream)
    describe = call(AsyncHiragClient.describe)
    list_indexes = call(AsyncHiragClient.list_indexes)
    get_entity = call(AsyncHiragClient.get_entity)
    find_path = call(AsyncHiragClient.find_path)
    get_community = call(AsyncHiragClient.get_community)
    get_document = call(AsyncHiragClient.get_document)
    wait_ready = call(AsyncHiragClient.wait_ready)
