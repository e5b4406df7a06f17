"""What both clients share: settings, requests, and errors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from hirag_dist.errors import ConfigError, HiragError, ServiceError
from hirag_dist.service._pb import query_pb2 as pb
from hirag_dist.service.convert import answer_from_proto, query_to_proto, retrieval_from_proto
from hirag_dist.service.options import DEFAULT_LISTEN, MAX_MESSAGE_BYTES
from hirag_dist.service.status import REQUEST_ID_KEY, DeadlinePassed, Unauthenticated, error_of
from hirag_dist.types import Answer, Query, Retrieval

SERVICE_NAME: str = pb.DESCRIPTOR.services_by_name["QueryService"].full_name

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
                    # CANCELLED is what a request meets that comes in while a server closes its doors
                    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED"],
                },
            }
        ],
    }
)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How to reach a service.

    Attributes:
        target: HOST:PORT, or any gRPC name such as dns:///HOST:PORT, whose addresses are used in turn.
        token: bearer token. Without TLS it crosses the network in the clear.
        tls: use TLS with the system's authorities; implied by the three paths.
        root_certificates: PEM file of the authorities that may have signed the server's certificate.
        certificate, key: PEM files of the client's own certificate chain and key, for mTLS.
        server_name: the name to expect in the server's certificate, where it is not the target's host.
        timeout_s: seconds for a call that names none; None for no limit.
        max_message_bytes: of a request and of a reply.
        retries: whether gRPC asks again, up to three times, where the service is out of reach, stopping or overloaded.

    Raises:
        ConfigError: a certificate has no key, or the other way round.
    """

    target: str = DEFAULT_LISTEN
    token: str | None = None
    tls: bool = False
    root_certificates: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None
    timeout_s: float | None = 60.0
    max_message_bytes: int = MAX_MESSAGE_BYTES
    retries: bool = True

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a client certificate needs both certificate and key")

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return TLS credentials, or None for a plain connection.

        Raises:
            ConfigError: a file cannot be read.
        """
        if not self.tls and self.root_certificates is None and self.certificate is None:
            return None
        return grpc.ssl_channel_credentials(_read(self.root_certificates), _read(self.key), _read(self.certificate))

    def channel_options(self) -> list[tuple[str, int | str]]:
        """Return gRPC's channel arguments."""
        chosen: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 5_000),
            ("grpc.enable_retries", int(self.retries)),
            ("grpc.service_config", _SERVICE_CONFIG),
        ]
        if self.server_name is not None:
            chosen.append(("grpc.ssl_target_name_override", self.server_name))
        return chosen

    def metadata(self, request_id: str | None) -> list[tuple[str, str]]:
        """Return what a call carries besides its message."""
        carried = [] if self.token is None else [("authorization", f"Bearer {self.token}")]
        return carried if request_id is None else [*carried, (REQUEST_ID_KEY, request_id)]


def _read(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"the certificate or key file {path} cannot be read: {error}") from error


def query_message(query: Query | str) -> pb.Query:
    """Return the message for a question or a query.

    Raises:
        InvalidQuery: as `query_to_proto`.
    """
    return query_to_proto(Query(query) if isinstance(query, str) else query)


def explain(error: grpc.RpcError, target: str) -> HiragError:
    """Return what a failed call means: the server's own error where it sent one.

    Args:
        error: what gRPC raised.
        target: whom was asked.
    """
    code, message = error.code(), error.details() or ""
    trailers: Any = error.trailing_metadata() or ()  # pairs, whatever the stubs say
    raised = error_of(code, message, trailers)
    if raised is not None:
        return raised
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            return ServiceError(f"no service answers at {target}; start one with `hirag-dist serve` (gRPC: {message})")
        case grpc.StatusCode.CANCELLED:
            return ServiceError(f"the service at {target} stopped during the request; ask again")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlinePassed(f"{target} did not answer in time; allow more with timeout_s")
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return Unauthenticated(f"{target} refused the caller: {message}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return ServiceError(f"{target} is no hirag-dist service, or one of another version: {message}")
    return ServiceError(f"{target} failed with {code.name}: {message}")


class AnswerReader:
    """Makes an answer's parts of the messages of its stream."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._retrieval: Retrieval | None = None
        self._answer: Answer | None = None

    def read(self, message: pb.AnswerResponse) -> Retrieval | str | Answer | None:
        """Return the part in a message, None for a kind that this version does not know.

        Raises:
            ServiceError: the answer came without a retrieval.
        """
        match message.WhichOneof("part"):
            case "retrieval":
                self._retrieval = retrieval_from_proto(message.retrieval)
                return self._retrieval
            case "text":
                return message.text
            case "answer":
                retrieval = self._retrieval
                if retrieval is None:
                    if not message.answer.HasField("retrieval"):
                        raise ServiceError(f"{self._target} sent an answer without its retrieval")
                    retrieval = retrieval_from_proto(message.answer.retrieval)
                self._answer = answer_from_proto(message.answer, retrieval)
                return self._answer
        return None

    def answer(self) -> Answer:
        """Return the final answer.

        Raises:
            ServiceError: the stream ended without one.
        """
        if self._answer is None:
            raise ServiceError(f"{self._target} ended its stream without an answer")
        return self._answer


def not_ready(target: str, timeout_s: float, answered: bool) -> ServiceError:
    """Return the error of a service that did not become ready."""
    if answered:
        return ServiceError(f"the service at {target} had no snapshot loaded within {timeout_s:g} s; see its log")
    return ServiceError(f"no service answers at {target} within {timeout_s:g} s; start one with `hirag-dist serve`")
