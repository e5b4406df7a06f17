"""The messages that a client declares itself are those of the packages that it does without."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2

from hirag_dist.wire import status_details


def test_details_of_google_rpc_are_read() -> None:
    status = status_pb2.Status(code=8, message="full")
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(61_250)
    info = error_details_pb2.ErrorInfo(reason="OVERLOADED", domain="hirag_dist", metadata={"a": "1", "b": ""})
    for detail in (info, error_details_pb2.BadRequest(), error_details_pb2.RequestInfo(request_id="r 灯"), retry):
        status.details.add().Pack(detail)
    found = status_details.details_of(status.SerializeToString())
    assert found.keys() == {"ErrorInfo", "RequestInfo", "RetryInfo"}
    assert (found["ErrorInfo"].reason, found["ErrorInfo"].domain) == ("OVERLOADED", "hirag_dist")
    assert {one.key: one.value for one in found["ErrorInfo"].metadata} == {"a": "1", "b": ""}
    assert found["RequestInfo"].request_id == "r 灯"
    assert status_details.seconds_of(found["RetryInfo"]) == 61.25


def test_a_detail_of_another_package_is_not_taken_for_one() -> None:
    status = status_pb2.Status()
    status.details.add(type_url="type.googleapis.com/example.ErrorInfo", value=b"\xff")
    assert status_details.details_of(status.SerializeToString()) == {}


@pytest.mark.parametrize("broken", [b"\xff\xff", b"\x1a\x7f"])
def test_what_is_no_status_is_an_error(broken: bytes) -> None:
    with pytest.raises(DecodeError):
        status_details.details_of(broken)


def test_health_checks() -> None:
    request = status_details.HealthCheckRequest(service="hirag.query.v1.QueryService").SerializeToString()
    assert health_pb2.HealthCheckRequest.FromString(request).service == "hirag.query.v1.QueryService"
    for name, number in health_pb2.HealthCheckResponse.ServingStatus.items():
        sent = health_pb2.HealthCheckResponse(status=number).SerializeToString()
        assert (status_details.HealthCheckResponse.FromString(sent).status == status_details.SERVING) == (
            name == "SERVING"
        )
