"""Settings of S3-compatible stores from the usual variables."""

from __future__ import annotations

import pytest

from hirag_dist.config.object_stores import store_uri
from hirag_dist.errors import ConfigError

MINIO = {"AWS_ENDPOINT_URL": "http://minio:9000"}
ADDED = "endpoint_override=minio%3A9000&scheme=http&region="


@pytest.mark.parametrize(
    ("uri", "environ", "expected"),
    [
        ("s3://b/i", {}, "s3://b/i"),
        ("s3://b/i", MINIO, f"s3://b/i?{ADDED}us-east-1"),
        ("s3://b/i", MINIO | {"AWS_DEFAULT_REGION": "eu-1"}, f"s3://b/i?{ADDED}eu-1"),
        ("s3://b/i?region=x", MINIO, "s3://b/i?region=x&endpoint_override=minio%3A9000&scheme=http"),
        ("s3://b/i?endpoint_override=a:1", MINIO, "s3://b/i?endpoint_override=a:1"),
        (
            "s3://b/i",
            MINIO | {"AWS_ENDPOINT_URL_S3": "https://abc.r2.cloudflarestorage.com", "AWS_REGION": "auto"},
            "s3://b/i?endpoint_override=abc.r2.cloudflarestorage.com&scheme=https&region=auto",
        ),
        ("gs://b/i", MINIO, "gs://b/i"),
        ("/data/i", MINIO, "/data/i"),
    ],
)
def test_variables_complete_the_uri(uri: str, environ: dict[str, str], expected: str) -> None:
    assert store_uri(uri, environ) == expected


def test_an_endpoint_that_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="Invalid AWS_ENDPOINT_URL: expected http://HOST:PORT"):
        store_uri("s3://b/i", {"AWS_ENDPOINT_URL": "minio:9000"})
