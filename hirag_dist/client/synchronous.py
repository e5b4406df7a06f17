"""The synchronous client: the asynchronous one in a thread with an event loop."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from hirag_dist._loop_thread import LoopThread
from hirag_dist.client.asynchronous import AsyncHiragClient
from hirag_dist.wire.addresses import DEFAULT_LISTEN

P = ParamSpec("P")
T = TypeVar("T")


def _call(
    method: Callable[Concatenate[AsyncHiragClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[HiragClient, P], T]:
    """Return a method that waits for the result of one of the asynchronous client."""

    @wraps(method)
    def call(self: HiragClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._client, *args, **kwargs))

    return call


def _stream(
    method: Callable[Concatenate[AsyncHiragClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[HiragClient, P], Generator[T, None, None]]:
    """Return a method that yields what one of the asynchronous client yields."""

    @wraps(method)
    def call(self: HiragClient, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return self._thread.iterate(method(self._client, *args, **kwargs))

    shown = inspect.signature(method)
    returned = str(shown.return_annotation).replace("AsyncGenerator[", "Generator[").removesuffix("]") + ", None]"
    call.__signature__ = shown.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return call


class HiragClient:
    """Client of a running service; usable from several threads, and as a context manager.

    Every call takes the keyword arguments of `CallOptions`. It raises the error that the service raised
    (`InvalidQuery`, `ModelUnavailable`, `Unauthenticated`, …), or `ServiceError` if no service is reachable or the
    connection is lost. A call that did not begin is retried (`ClientOptions.retries`); a reply that was interrupted is
    not, since an answer would be paid for twice.

    Args:
        target: HOST:PORT, http://HOST:PORT, or https://HOST:PORT with TLS.
        options: fields of `ClientOptions`: token or token_file, root_certificates, certificate, key, timeout_s, …

    Raises:
        ConfigError: the options contradict each other, or a file cannot be read.
        TypeError: an option is unknown.
        RuntimeError: from a call, when the client is closed.
    """

    def __init__(self, target: str = DEFAULT_LISTEN, **options: Any) -> None:
        async def client() -> AsyncHiragClient:
            return AsyncHiragClient(target, **options)

        self._thread = LoopThread("hirag-dist-client", lambda: RuntimeError("this client is closed; make another"))
        weakref.finalize(self, self._thread.close)  # also at the end of the process
        self._client = self._thread.run(client())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Calls in progress end with ServiceError."""
        if self._thread.running:
            self._thread.run(self._client.close())
            self._thread.close()

    retrieve = _call(AsyncHiragClient.retrieve)
    retrieve_stream = _stream(AsyncHiragClient.retrieve_stream)
    answer = _call(AsyncHiragClient.answer)
    answer_stream = _stream(AsyncHiragClient.answer_stream)
    describe = _call(AsyncHiragClient.describe)
    list_indexes = _call(AsyncHiragClient.list_indexes)
    get_entity = _call(AsyncHiragClient.get_entity)
    find_path = _call(AsyncHiragClient.find_path)
    get_community = _call(AsyncHiragClient.get_community)
    get_document = _call(AsyncHiragClient.get_document)
    wait_ready = _call(AsyncHiragClient.wait_ready)
