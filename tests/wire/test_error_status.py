"""Errors → statuses → errors."""

from __future__ import annotations

import inspect
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2

from hirag_dist import errors
from hirag_dist.errors import HiragError, InvalidQuery, ModelUnavailable, RateLimited, ServiceError
from hirag_dist.wire import error_status

PUBLIC = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HiragError)]
KINDS = [kind for kind, _ in error_status.STATUS]


def sent(error: HiragError, remaining_s: float | None = None) -> tuple[status_pb2.Status, HiragError | None, Any]:
    """Return the status that is sent for an error, the error that a client makes of it, and gRPC's word on retries."""
    trailers = error_status.trailers_of(error, "r1", remaining_s)
    back = error_status.error_of(error_status.status_of(error), error_status.message_of(error), trailers)
    said: Any = dict(trailers)
    return status_pb2.Status.FromString(said[error_status.DETAILS_KEY]), back, said.get(error_status.PUSHBACK_KEY)


@pytest.mark.parametrize("kind", sorted({*PUBLIC, *KINDS}, key=lambda kind: kind.__name__))
def test_every_error_has_a_row_and_comes_back(kind: type[HiragError]) -> None:
    error = kind("what to do")
    status, back, _ = sent(error)
    assert type(back) is kind
    assert str(back) == "what to do"
    assert status.code == error_status.status_of(error).value[0] != grpc.StatusCode.OK.value[0]


def test_a_wrong_field_is_named() -> None:
    status, back, _ = sent(InvalidQuery("top_n must be at least 1, got 0"))
    bad, info = error_details_pb2.BadRequest(), error_details_pb2.ErrorInfo()
    assert [sum(detail.Unpack(kind) for detail in status.details) for kind in (bad, info)] == [1, 1]
    (wrong,) = bad.field_violations
    assert (wrong.field, wrong.description) == ("query.top_n", "top_n must be at least 1, got 0")
    assert (info.reason, info.domain, back and back.request_id) == ("INVALID_QUERY", "hirag_dist", "r1")
    assert error_status.field_of(InvalidQuery("the index has no level 9")) == "query"


@pytest.mark.parametrize(
    ("error", "remaining_s", "delay_s", "pushback"),
    [
        (RateLimited("429", 2.5), None, 2.5, "2500"),
        (RateLimited("429", 2.5), 1.0, 2.5, "-1"),  # the caller would meet its deadline instead of the error
        (RateLimited("429", 0.0), 30.0, 0.0, "0"),
        (RateLimited("429"), 30.0, 1.0, "1000"),
        (ModelUnavailable("down"), 30.0, 1.0, "-1"),  # the service has tried several times itself
        (error_status.Overloaded("full"), 30.0, 0.2, "200"),
        (error_status.QuotaExceeded("used up", "quota", "web", 43_200.0), None, 43_200.0, "-1"),  # nobody waits so long
        (errors.BackendUnavailable("no Milvus"), 30.0, None, "-1"),
        (InvalidQuery("no"), 30.0, None, None),
    ],
)
def test_when_to_ask_again(
    error: HiragError, remaining_s: float | None, delay_s: float | None, pushback: str | None
) -> None:
    _, back, told = sent(error, remaining_s)
    assert back is not None
    assert (back.retry_delay_s, told) == (delay_s, pushback)
    assert getattr(back, "retry_after_s", None) == getattr(error, "retry_after_s", None), "what an endpoint asked for"


def test_a_long_message_is_cut_to_fit_a_header() -> None:
    for text in ("x" * 5000, "灯" * 5000, "\ud800" * 5000):
        message = error_status.message_of(HiragError(text))
        assert len(message.encode()) <= 1024
    assert error_status.message_of(HiragError("灯台")) == "灯台"


def test_statuses_that_are_not_ours() -> None:
    def error_of(raw: bytes | None = None) -> HiragError | None:
        trailers = () if raw is None else ((error_status.DETAILS_KEY, raw),)
        return error_status.error_of(grpc.StatusCode.UNAVAILABLE, "m", trailers)

    foreign, later = status_pb2.Status(code=14, message="m"), status_pb2.Status(code=14, message="m")
    foreign.details.add().Pack(error_details_pb2.ErrorInfo(reason="INVALID_QUERY", domain="example.com"))
    later.details.add(type_url="type.googleapis.com/example.RetryInfo", value=b"\xff")  # of another package
    later.details.add().Pack(error_details_pb2.ErrorInfo(reason="FROM_THE_FUTURE", domain="hirag_dist"))
    assert [error_of(raw) for raw in (None, b"\xff\xff", b"\x1a\x7f", foreign.SerializeToString())] == [None] * 4
    assert type(error_of(later.SerializeToString())) is ServiceError


def test_health_checks() -> None:
    request = error_status.HealthCheckRequest(service="hirag.query.v1.QueryService").SerializeToString()
    assert health_pb2.HealthCheckRequest.FromString(request).service == "hirag.query.v1.QueryService"
    for name, number in health_pb2.HealthCheckResponse.ServingStatus.items():
        sent = health_pb2.HealthCheckResponse(status=number).SerializeToString()
        assert (error_status.HealthCheckResponse.FromString(sent).status == error_status.SERVING) == (name == "SERVING")
