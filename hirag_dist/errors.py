"""Every error that a caller may meet. The message says what to do; the class says what kind of trouble it is.

HiragError
├── ConfigError            the configuration is wrong                         exit 2
├── InputError             the INPUT arguments are wrong                      exit 2
├── InvalidQuery           the question or its parameters are wrong           exit 2
├── NotFound               no such item, or the caller may not see it
├── BackendUnavailable     a named backend is missing or out of reach
├── SchemaMismatch         a table does not have the columns it should
├── StoreError             the index folder cannot be read or written
│   └── WorkFileDamaged    a file of the work folder is not what was written: it is made again
├── SnapshotError          a snapshot cannot be served
│   ├── SnapshotNotFound   nothing is published there
│   ├── SnapshotCorrupt    a file is missing, short or altered
│   └── SnapshotTooNew     a later version of hirag_dist wrote it
├── IndexBusy              another run holds the index                        exit 5
├── ModelError             a model endpoint did not do its work
│   ├── RateLimited        429; retryable, says when
│   ├── ModelUnavailable   no answer, 5xx; retryable
│   │   ├── EndpointUnreachable  no connection came about
│   │   ├── TimedOut       an endpoint that was reached did not answer in time
│   │   └── UnusableReply  an answer of 2xx that cannot be read, or is too large
│   └── RequestRejected    4xx: asking again will not help
│       └── ContextLengthExceeded  the prompt and its reply do not fit into the model's window
├── StageFailed            a stage cannot go on
├── BudgetReached          --max-usd or --max-tokens would be passed          exit 4
└── ServiceError           a running query service refused or is out of reach
"""

from __future__ import annotations

from typing import ClassVar, Literal


class HiragError(Exception):
    """Base of all errors of the package. They pickle with their attributes, since each can be made of a message alone.

    Attributes:
        request_id: name of the failed call in the log of the service that raised the error; "" for all others.
        retry_delay_s: seconds after which that service advises to try again; None where it does not.
    """

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    request_id: str = ""
    retry_delay_s: float | None = None


class ConfigError(HiragError):
    """The configuration is wrong."""

    exit_code = 2


class InputError(HiragError):
    """The INPUT arguments are wrong."""

    exit_code = 2


class InvalidQuery(HiragError):
    """The question or its parameters are wrong."""

    exit_code = 2


class NotFound(HiragError):
    """The index has no such entity, community or document, or the caller may not see it: the error is the same."""


class BackendUnavailable(HiragError):
    """A named backend is missing or out of reach."""


class SchemaMismatch(HiragError):
    """A table does not have the columns it should."""


class StoreError(HiragError):
    """The index folder cannot be read or written."""


class WorkFileDamaged(StoreError):
    """A file of the work folder is not what was written. The build that reads it makes it again."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class SnapshotError(HiragError):
    """A snapshot cannot be served."""


class SnapshotNotFound(SnapshotError):
    """Nothing is published there."""


class SnapshotCorrupt(SnapshotError):
    """A file of the snapshot is missing, short or altered."""


class SnapshotTooNew(SnapshotError):
    """A later version of hirag_dist wrote the snapshot."""


class IndexBusy(HiragError):
    """Another run holds the index."""

    exit_code = 5


class ModelError(HiragError):
    """A model endpoint did not do its work."""


class RateLimited(ModelError):
    """The endpoint answered 429.

    Attributes:
        retry_after_s: seconds the endpoint asked for, or None.
        kind: what was too much, as far as it says: requests, tokens, concurrency, or "".
    """

    retryable = True

    def __init__(
        self,
        message: str,
        retry_after_s: float | None = None,
        kind: Literal["requests", "tokens", "concurrency", ""] = "",
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.kind = kind


class ModelUnavailable(ModelError):
    """No answer, or a 5xx: asking again may help.

    Attributes:
        was_sent: the request had reached the endpoint, and may be billed, although no answer came.
        status: HTTP status of the answer; 0 where none came.
        is_alive: whether tokens or answers to other calls came from the endpoint meanwhile, so that it is no outage.
    """

    retryable = True

    def __init__(self, message: str, was_sent: bool = False, status: int = 0) -> None:
        super().__init__(message)
        self.was_sent = was_sent
        self.status = status
        self.is_alive = False


class EndpointUnreachable(ModelUnavailable):
    """No connection to the endpoint came about: it is down, or its address, certificate or proxy is wrong."""


class TimedOut(ModelUnavailable):
    """An endpoint that was reached did not answer in time."""

    def __init__(self, message: str, was_sent: bool = True) -> None:
        super().__init__(message, was_sent)


class UnusableReply(ModelUnavailable):
    """An answer of 2xx that cannot be read, or is too large. It was paid for."""

    def __init__(self, message: str, was_sent: bool = True) -> None:
        super().__init__(message, was_sent)


class RequestRejected(ModelError):
    """A 4xx: asking again will not help.

    Attributes:
        fatal: every other request would meet the same (wrong key, no such model), so the run must end; else this
            request alone is at fault.
        status: HTTP status of the answer; 0 where there was none.
    """

    status: int = 0

    def __init__(self, message: str, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal


class ContextLengthExceeded(RequestRejected):
    """The prompt and its reply do not fit into the model's context window: a shorter prompt may be answered.

    Attributes:
        window_tokens: Size of the window in tokens, where the endpoint names it.
        prompt_tokens: Size of the prompt in tokens as the endpoint counts it, where it names it.
    """

    def __init__(self, message: str, window_tokens: int | None = None, prompt_tokens: int | None = None) -> None:
        super().__init__(message)
        self.window_tokens = window_tokens
        self.prompt_tokens = prompt_tokens


class StageFailed(HiragError):
    """A stage cannot go on."""


class BudgetReached(HiragError):
    """The spending limit of this run would be passed."""

    exit_code = 4


class ServiceError(HiragError):
    """A running query service refused or is out of reach."""
