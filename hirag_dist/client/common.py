"""Options, call arguments and errors of both clients."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import grpc
from google.protobuf.message_factory import GetMessageClass

from hirag_dist.errors import ConfigError, HiragError, ServiceError
from hirag_dist.types import Query, QueryOptions, as_query
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.addresses import DEFAULT_LISTEN, MAX_MESSAGE_BYTES, proxy_options
from hirag_dist.wire.convert import lookup_request, query_to_proto
from hirag_dist.wire.error_status import (
    REQUEST_ID_KEY,
    DeadlinePassed,
    RequestTooLarge,
    Unauthenticated,
    error_of,
)

_SERVICE = pb.DESCRIPTOR.services_by_name["QueryService"]
SERVICE_NAME: str = _SERVICE.full_name
_CONFIG_KEY = "grpc.service_config"

_SERVICE_CONFIG = json.dumps(
    {
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [
            {
                "name": [{"service": SERVICE_NAME}],
                "retryPolicy": {  # the service says in its trailers when to ask again, or not at all
                    "maxAttempts": 4,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "2s",
                    "backoffMultiplier": 2,
                    # CANCELLED is what a request meets that comes in while a server closes its doors: without
                    # it, a rolling restart fails some
                    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED"],
                },
            }
        ],
    }
)


class CallOptions(TypedDict, total=False):
    """Keyword arguments of every call of a client.

    Attributes:
        timeout_s: seconds for the call with all its retries; None takes that of the client's options.
        request_id: name of the call in the service's log, 1 to 64 of A-Z a-z 0-9 . _ -.
        token: bearer token of this call, instead of the client's: for a program that asks on behalf of others.
        index: name of the index to ask, instead of the client's; `list_indexes` does not use it.
    """

    timeout_s: float | None
    request_id: str | None
    token: str | None
    index: str | None


class QuestionOptions(CallOptions, total=False):
    """Keyword arguments of every question of a client.

    Attributes:
        omit_context: leave the rendered context out of the reply.
        omit_source_text: leave the texts of the sources out of the reply.
    """

    omit_context: bool
    omit_source_text: bool


class LookupOptions(CallOptions, total=False):
    """Keyword arguments of every look-up of a client.

    Attributes:
        labels: that every document searched must carry.
        filter: expression over metadata that every document searched must meet, as in `Query`.
        as_of: date or time that no document searched is later than, as in `Query`.
    """

    labels: Sequence[str]
    filter: str
    as_of: str


_OF_CALL = CallOptions.__annotations__.keys()
LIST_PAGE_SIZE = 1000  # indexes in one call of `list_indexes`
_KEEPALIVE_TIMEOUT_S = 20.0
_IDLE_S = 240  # without a call, after which the connection is closed until the next one
HOW_TO_START = "start one with `hirag-dist serve`, or give its gRPC port if this is its HTTP port"
_CLOSED = re.compile(r"socket closed|reset by peer", re.IGNORECASE)
_TLS_TROUBLE = re.compile(r"handshake|certificate|verification check|ssl", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Address, security and limits of a connection to a service.

    Attributes:
        target: HOST:PORT, http://HOST:PORT, https://HOST:PORT (with TLS), or any gRPC name whose addresses are used in
            turn: dns:///HOST:PORT, or ipv4:ADDRESS:PORT,ADDRESS:PORT.
        token: bearer token. Without TLS it crosses the network in the clear.
        token_file: file with the token, instead of `token`; read again when it changes, so a token can be rotated.
        tls: use TLS with the system's authorities; implied by the three paths and by `server_name`.
        root_certificates: PEM file of the authorities that may have signed the server's certificate.
        certificate, key: PEM files of the client's own certificate chain and key, for mTLS.
        server_name: name in the server's certificate, if it is not the target's host.
        timeout_s: seconds for a call without a timeout of its own; None for no limit.
        max_message_bytes: of a request and of a reply.
        keepalive_s: seconds of silence during a call after which the connection is probed; it is closed if the answer
            takes as long again, at most 20 s. Services refuse more than one probe in 10 s.
        index: name of the index to ask; empty for the only one, or the default one, of the service.
        retries: whether gRPC retries a call, up to three times, if the service is unreachable, stopping or overloaded.

    Raises:
        ConfigError: a certificate has no key, or the other way round; both tokens are given; the token file cannot be
            read.
    """

    target: str = DEFAULT_LISTEN
    token: str | None = field(default=None, repr=False)
    token_file: str | Path | None = None
    tls: bool = False
    root_certificates: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None
    timeout_s: float | None = 60.0
    max_message_bytes: int = MAX_MESSAGE_BYTES
    keepalive_s: float = 30.0
    index: str = ""
    retries: bool = True

    def __post_init__(self) -> None:
        target, scheme = _address(self.target)
        object.__setattr__(self, "target", target)
        if scheme == "https":
            object.__setattr__(self, "tls", True)
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a client certificate needs both certificate and key")
        if self.token is not None and self.token_file is not None:
            raise ConfigError("give either token or token_file, not both")
        if self.token is not None:
            check_token(self.token, "the token")
        if self.token_file is not None:
            TokenFile(self.token_file)  # checks the file

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return TLS credentials, or None for a plain connection.

        Raises:
            ConfigError: a file cannot be read.
        """
        named = (self.root_certificates, self.certificate, self.server_name)
        if not self.tls and all(one is None for one in named):
            return None
        return grpc.ssl_channel_credentials(_read(self.root_certificates), _read(self.key), _read(self.certificate))

    def channel_options(self) -> list[tuple[str, int | str]]:
        """Return gRPC's channel arguments."""
        timeout_ms = int(min(self.keepalive_s, _KEEPALIVE_TIMEOUT_S) * 1000)
        chosen: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.keepalive_time_ms", int(self.keepalive_s * 1000)),
            ("grpc.keepalive_timeout_ms", timeout_ms),
            ("grpc.http2.ping_timeout_ms", timeout_ms),  # the default is 60 s if another kind of ping is pending
            ("grpc.http2.max_pings_without_data", 0),  # the default allows two pings, then one per minute
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 5_000),
            # earlier than the service would: a connection that the service closes is opened again at once
            ("grpc.client_idle_timeout_ms", _IDLE_S * 1000),
            # a new client does not inherit the connections of others, which may be waiting to reconnect
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", int(self.retries)),
            (_CONFIG_KEY, _SERVICE_CONFIG),
            *proxy_options(self.target),
        ]
        if self.server_name is not None:
            chosen.append(("grpc.ssl_target_name_override", self.server_name))
        return chosen


def make_channel(
    options: ClientOptions, credentials: grpc.ChannelCredentials | None, service_config: str = _SERVICE_CONFIG
) -> grpc.aio.Channel:
    """Return a channel of a client.

    Args:
        credentials: as `ClientOptions.credentials` returns them.
        service_config: gRPC's, as JSON: retries and load balancing.
    """
    arguments = list((dict(options.channel_options()) | {_CONFIG_KEY: service_config}).items())
    if credentials is None:
        return grpc.aio.insecure_channel(options.target, options=arguments)
    return grpc.aio.secure_channel(options.target, credentials, options=arguments)


class CallArguments:
    """Timeout and metadata of the calls of one client.

    Raises:
        ConfigError: the token file cannot be read, or holds no token.
    """

    def __init__(self, options: ClientOptions) -> None:
        self._timeout_s = options.timeout_s
        self._index = options.index
        self._token = options.token
        self._token_file = None if options.token_file is None else TokenFile(options.token_file)

    def of(self, options: CallOptions) -> dict[str, Any]:
        """Return the keyword arguments of gRPC's methods for one call.

        Raises:
            ConfigError: the token holds characters that a header cannot.
            TypeError: an option is unknown.
        """
        check_names(options, CallOptions.__annotations__, "a call")
        timeout_s, request_id, token = options.get("timeout_s"), options.get("request_id"), options.get("token")
        if token is not None:
            check_token(token, "the token")
        else:
            token = self._token if self._token_file is None else self._token_file.token()
        metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        if request_id is not None:
            metadata.append((REQUEST_ID_KEY, request_id))
        return {"timeout": self._timeout_s if timeout_s is None else timeout_s, "metadata": metadata}

    def of_question(
        self, kind: Callable[..., Any], query: Query | str, options: QuestionOptions
    ) -> tuple[Any, dict[str, Any]]:
        """Return the request of a question or a query, and the keyword arguments of its call.

        Raises:
            InvalidQuery: as `query_to_proto`.
            TypeError: an option is unknown.
        """
        check_names(options, QuestionOptions.__annotations__, "a call")
        own, others = _divided(options)
        return kind(query=query_to_proto(as_query(query, {})), **own, index=self.index(others)), self.of(others)

    def of_lookup(self, kind: Callable[..., Any], options: LookupOptions, **values: Any) -> tuple[Any, dict[str, Any]]:
        """Return the request of a look-up with some fields, and the keyword arguments of its call.

        Raises:
            InvalidQuery: a text is not valid Unicode, or a number is out of range.
            TypeError: an option is unknown.
        """
        check_names(options, LookupOptions.__annotations__, "a look-up")
        own, others = _divided(options)
        return lookup_request(kind, **values, **own, index=self.index(others)), self.of(others)

    def index(self, options: CallOptions) -> str:
        """Return the name of the index that a call asks, empty for the service's default."""
        index = options.get("index")
        return self._index if index is None else index


def _divided(options: Mapping[str, Any]) -> tuple[dict[str, Any], CallOptions]:
    """Return the options that are fields of the request, and those of every call."""
    others: Any = {name: value for name, value in options.items() if name in _OF_CALL}
    return {name: value for name, value in options.items() if name not in _OF_CALL}, others


def _address(target: object) -> tuple[str, str]:
    """Return the gRPC name of an address, and its scheme; empty without one.

    Raises:
        ConfigError: the address is no text, or a URL with something else than host and port.

    >>> _address("https://hirag.example.org:443/"), _address("127.0.0.1:50051")
    (('hirag.example.org:443', 'https'), ('127.0.0.1:50051', ''))
    """
    wanted = "HOST:PORT, http://HOST:PORT or https://HOST:PORT of the gRPC service, such as 127.0.0.1:50051"
    if not isinstance(target, str):
        raise ConfigError(f"target: expected {wanted}, got {type(target).__name__}")
    scheme, found, rest = target.partition("://")
    if not found or scheme.lower() not in ("http", "https"):
        return target, ""
    rest = rest.removesuffix("/")
    if not re.fullmatch(r"[^/?#@\s]+:[0-9]+", rest):
        raise ConfigError(f"target: expected {wanted}, got {target!r}")
    return rest, scheme.lower()


def client_options(target: str, options: Mapping[str, Any]) -> ClientOptions:
    """Return the options of a client.

    Raises:
        ConfigError: as `ClientOptions`.
        TypeError: an option is unknown.
    """
    check_names(options, [field.name for field in fields(ClientOptions)], "a client")
    return ClientOptions(target=target, **options)


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise TypeError for the first keyword argument with an unknown name, with the name that was probably meant."""
    known = list(known)
    for name in given:
        if name in known:
            continue
        near = get_close_matches(name, [*known, *QueryOptions.__annotations__], n=1, cutoff=0.6)
        if name in QueryOptions.__annotations__:
            hint = f"it is a field of Query: Query(question, {name}=…)"
        elif near:
            hint = f"did you mean {near[0] if near[0] in known else f'Query(question, {near[0]}=…)'}?"
        else:
            hint = f"{what} takes {', '.join(known)}"
        raise TypeError(f"unknown keyword argument {name!r}; {hint}")


def _read(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"the certificate or key file {path} cannot be read: {error}") from error


def service_stub(channel: grpc.Channel | grpc.aio.Channel) -> Any:
    """Return an object with the methods of QueryService on a channel, by their names."""
    stub = SimpleNamespace()
    for method in _SERVICE.methods:
        make: Any = channel.unary_stream if method.server_streaming else channel.unary_unary
        serialize = GetMessageClass(method.input_type).SerializeToString
        read = GetMessageClass(method.output_type).FromString
        path = f"/{SERVICE_NAME}/{method.name}"
        setattr(stub, method.name, make(path, request_serializer=serialize, response_deserializer=read))
    return stub


def explain(error: grpc.RpcError, target: str, *, begun: bool = False, closed: bool = False) -> HiragError:
    """Return the error of a failed call: the one that the server raised, if it sent one.

    Args:
        begun: whether a part of the reply had arrived.
    """
    code, message = error.code(), error.details() or ""
    trailers: Any = error.trailing_metadata() or ()  # pairs; the stubs say otherwise
    raised = error_of(code, message, trailers)
    if raised is not None:
        return raised
    match code:
        case grpc.StatusCode.CANCELLED if closed:
            return closed_early()
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED if begun:
            return ServiceError(f"the connection to {target} was lost during the reply; ask again (gRPC: {message})")
        case grpc.StatusCode.UNAVAILABLE if _TLS_TROUBLE.search(message):
            return ServiceError(
                f"the TLS handshake with {target} failed; if the service uses no TLS, connect without it; else "
                "root_certificates (--ca) must hold the authority that signed its certificate, and server_name "
                f"(--server-name) be a name in it (gRPC: {message})"
            )
        case grpc.StatusCode.UNAVAILABLE if _CLOSED.search(message):
            return ServiceError(
                f"no service answers at {target}, which closed the connection; if it uses TLS, give root_certificates "
                "(--ca) or tls (--tls), and if it asks for a certificate, certificate and key (--cert, --key) too; "
                f"else {HOW_TO_START} (gRPC: {message})"
            )
        case grpc.StatusCode.UNAVAILABLE:
            return ServiceError(f"no service answers at {target}; {HOW_TO_START} (gRPC: {message})")
        case grpc.StatusCode.CANCELLED:
            return ServiceError(f"the service at {target} stopped during the request; ask again")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlinePassed(f"{target} did not answer in time; allow more with timeout_s")
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in message:
            return RequestTooLarge(
                f"a message is larger than {target} or this client takes; ask with omit_context, omit_source_text or a "
                f"smaller top_n, top_m or top_c (gRPC: {message})"
            )
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return Unauthenticated(f"{target} refused the caller: {message}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return ServiceError(f"{target} is no hirag-dist service, or one of another version: {message}")
    return ServiceError(f"{target} failed with {code.name}: {message}")


def closed_early() -> ServiceError:
    """Return the error of a call during which the client was closed."""
    return ServiceError("the client was closed during the request")


class TokenFile:
    """A bearer token in a file that may be replaced while it is used.

    Args:
        path: Path of the file; spaces and line ends around the token are not part of it.

    Raises:
        ConfigError: it cannot be read, or holds no token.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._version = self._stat()
        self._token = self._load()

    def token(self) -> str:
        """Return the token that is in the file now.

        If the file is missing or empty, as it is for a moment while it is replaced, the last token stays in use: the
        service reports when that one has expired.
        """
        try:
            version = self._stat()
            if version != self._version:
                self._token = self._load()
                self._version = version
        except ConfigError:
            pass
        return self._token

    def _stat(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError as error:
            raise ConfigError(f"the token file {self._path} cannot be read: {error.strerror}") from error
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _load(self) -> str:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"the token file {self._path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"the token file {self._path} is no text") from error
        check_token(token, f"the token file {self._path}")
        return token


def check_token(token: str, what: str) -> None:
    """Check that a token can be sent in a header: gRPC fails without a reason on one that cannot.

    Raises:
        ConfigError: it is empty, or holds characters that a header cannot.
    """
    if not token:
        raise ConfigError(f"{what} is empty")
    if not token.isascii() or not token.isprintable():
        raise ConfigError(f"{what} must be one line of ASCII characters")
