"""Settings of S3-compatible stores, read once for pyarrow and for obstore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import parse_qs, urlencode, urlsplit

from hirag_dist.errors import ConfigError

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def store_uri(uri: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the URI of a store for `pyarrow.fs.FileSystem.from_uri`, with the endpoint and region of the environment.

    What the query of the URI says comes first. URIs of other stores are returned as they are.

    Raises:
        ConfigError: the endpoint is no URL.

    >>> store_uri("s3://bucket/index", {"AWS_ENDPOINT_URL": "http://minio:9000"})
    's3://bucket/index?endpoint_override=minio%3A9000&scheme=http&region=us-east-1'
    """
    variable = next((name for name in _ENDPOINTS if environ.get(name)), None)
    if variable is None or not uri.lower().startswith("s3://"):
        return uri
    base, _, query = uri.partition("?")
    given = parse_qs(query, keep_blank_values=True)
    if "endpoint_override" in given:
        return uri
    endpoint = urlsplit(environ[variable])
    if endpoint.scheme not in ("http", "https") or not endpoint.netloc:
        raise ConfigError(f"Invalid {variable}: expected http://HOST:PORT or https://HOST, got {environ[variable]!r}")
    added = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    if "region" not in given:
        added["region"] = next((environ[name] for name in _REGIONS if environ.get(name)), "us-east-1")
    return f"{base}?{'&'.join(filter(None, (query, urlencode(added))))}"
