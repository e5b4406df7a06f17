"""Authentication of calls by bearer token or client certificate, or as an anonymous caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection, reflection_pb2

from hirag_dist.service.access_log import Context, RequestRecord
from hirag_dist.service.auth.caller_registry import Caller, Callers
from hirag_dist.service.file_watch import ReloadingValue
from hirag_dist.wire.error_status import Unauthenticated, message_of, status_of, trailers_of

_REFLECTION: Any = reflection  # the stubs leave out its asynchronous half
Kind: TypeAlias = Literal["anonymous", "token", "certificate"]

_NAMES = ("x509_common_name", "x509_subject_alternative_name")


class Authenticator:
    """Authenticator of calls.

    Args:
        callers: content of the callers file; None accepts every call as `anonymous`.
        anonymous: the caller of all calls if there is no callers file.
        certificates: whether clients present certificates, which then identify callers without a token.
        now: current time, with its zone.
    """

    def __init__(
        self,
        callers: ReloadingValue[Callers] | None,
        anonymous: Caller,
        *,
        certificates: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._callers = callers
        self._anonymous = anonymous
        self._certificates = certificates
        self._now = now

    def caller(self, context: Context) -> tuple[Caller, Kind]:
        """Return the caller and the kind of authentication. A token takes precedence over a certificate.

        Raises:
            Unauthenticated: the token is unknown or has expired; or there is none, and the certificate is unknown.
        """
        if self._callers is None:
            return self._anonymous, "anonymous"
        callers = self._callers.value
        given = next((value for key, value in context.invocation_metadata() or () if key == "authorization"), None)
        if given is not None:
            scheme, _, token = (given if isinstance(given, str) else "").partition(" ")
            caller, good = callers.of_token(token.strip(), self._now())
            if caller is not None and good and scheme.lower() == "bearer":
                return caller, "token"
            name = "" if caller is None else caller.name
            raise Unauthenticated(_REFUSAL, "expired_token" if name else "unknown_token", name)
        if self._certificates:
            caller = callers.of_certificate(_names(context))
            if caller is not None:
                return caller, "certificate"
            raise Unauthenticated(_REFUSAL, "unknown_certificate")
        raise Unauthenticated(_REFUSAL, "no_token")


_REFUSAL = "this service needs a bearer token that it knows and that has not expired; give one as `token`"


def _names(context: Context) -> list[str]:
    """Return the names in the client's certificate: its common name, then its alternative ones."""
    shown = context.auth_context()
    return [value.decode("utf-8", "replace") for key in _NAMES for value in shown.get(key, ())]


def guarded_reflection(
    names: tuple[str, ...],
    authenticator: Authenticator,
    observers: Sequence[Callable[[RequestRecord], None]],
) -> tuple[grpc.GenericRpcHandler, ...]:
    """Return the handlers of gRPC reflection for authenticated callers; observers get the records of rejected calls.

    Version v1 has the messages of v1alpha under another name, and newer tools ask for it first.
    """

    class Guarded(_REFLECTION.aio.ReflectionServicer):  # type: ignore[misc]
        async def ServerReflectionInfo(  # noqa: N802 - the name is the protocol's
            self, request_iterator: AsyncIterator[Any], context: Context
        ) -> AsyncIterator[Any]:
            try:
                authenticator.caller(context)
            except Unauthenticated as error:
                record = RequestRecord.of("ServerReflectionInfo", context)
                record.code, record.reason, record.caller = status_of(error).name, error.reason, error.caller
                record.seconds = record.elapsed_s
                for observer in observers:
                    observer(record)
                trailers = trailers_of(error, record.request_id, None)
                await context.abort(status_of(error), message_of(error), trailers)
            async for reply in super().ServerReflectionInfo(request_iterator, context):
                yield reply

    make: Any = grpc.stream_stream_rpc_method_handler
    handlers = {
        "ServerReflectionInfo": make(
            Guarded(names).ServerReflectionInfo,
            request_deserializer=_reflection_request,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
    }
    versions = (reflection.SERVICE_NAME, reflection.SERVICE_NAME.replace("v1alpha", "v1"))
    return tuple(grpc.method_handlers_generic_handler(version, handlers) for version in versions)


def _reflection_request(raw: bytes) -> Any:
    """Return the request. Undecodable bytes give an empty one, which is refused without a traceback in the log."""
    try:
        return reflection_pb2.ServerReflectionRequest.FromString(raw)
    except DecodeError:
        return reflection_pb2.ServerReflectionRequest()
