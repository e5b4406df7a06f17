"""Settings of S3-compatible stores, read once for pyarrow and for obstore."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from hirag_dist.errors import ConfigError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Store
    from pyarrow import fs

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_RETRY: RetryConfig = {"max_retries": 5, "retry_timeout": timedelta(seconds=20)}  # shorter than a lock lives
_BARE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_IN_PATHS = "/:@%+,;=&$!'()~#"
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def store_uri(uri: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the URI of a store for `pyarrow.fs.FileSystem.from_uri`, with the endpoint and region of the environment.

    What the query of the URI says comes first. Characters of the path that a URI must not have are escaped.

    Raises:
        ConfigError: the endpoint is no URL.

    >>> store_uri("s3://bucket/index", {"AWS_ENDPOINT_URL": "http://minio:9000"})
    's3://bucket/index?endpoint_override=minio%3A9000&scheme=http&region=us-east-1'
    >>> store_uri("s3://bucket/an index%20ü", {})
    's3://bucket/an%20index%20%C3%BC'
    """
    base, mark, query = uri.partition("?")
    scheme, separator, rest = base.partition("://")
    host, slash, path = rest.partition("/")
    base = f"{scheme}{separator}{host}{slash}{quote(_BARE_PERCENT.sub('%25', path), safe=_IN_PATHS)}"
    variable = next((name for name in _ENDPOINTS if environ.get(name)), None)
    if variable is None or not uri.lower().startswith("s3://"):
        return base + mark + query
    given = parse_qs(query, keep_blank_values=True)
    if "endpoint_override" in given:
        return base + mark + query
    endpoint = urlsplit(environ[variable])
    if endpoint.scheme not in ("http", "https") or not endpoint.netloc:
        raise ConfigError(f"Invalid {variable}: expected http://HOST:PORT or https://HOST, got {environ[variable]!r}")
    added = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    if "region" not in given:
        added["region"] = next((environ[name] for name in _REGIONS if environ.get(name)), "us-east-1")
    return f"{base}?{'&'.join(filter(None, (query, urlencode(added))))}"


def open_s3(filesystem: fs.S3FileSystem, root: str) -> S3Store:
    """Return a store of obstore with the endpoint, region and credentials of a filesystem.

    Args:
        root: bucket and folder, as pyarrow.fs writes them.

    Raises:
        OSError: the settings are of no store.
    """
    from obstore.store import S3Store

    options: dict[str, Any] = filesystem.__reduce__()[1][0]  # the only way to read what a URI's query set
    bucket, _, prefix = root.partition("/")
    config: S3Config = {
        "region": filesystem.region,
        "virtual_hosted_style_request": bool(options["force_virtual_addressing"] or not options["endpoint_override"]),
        "skip_signature": options["anonymous"],
    }
    if options["endpoint_override"]:
        scheme = options["scheme"] or "https"
        config["endpoint"] = options["endpoint_override"]
        if "://" not in config["endpoint"]:
            config["endpoint"] = f"{scheme}://{config['endpoint']}"
    if options["access_key"]:
        config |= _credentials(options["access_key"], options["secret_key"], options["session_token"])
    elif not os.environ.get("AWS_ACCESS_KEY_ID"):
        config |= _shared_credentials()
    client: ClientConfig = {"allow_http": options["scheme"] == "http"}
    if options["tls_ca_file_path"]:
        client["root_certificate"] = Path(options["tls_ca_file_path"]).read_bytes()
    with obstore_errors():
        return S3Store(bucket, prefix=prefix or None, config=config, client_options=client, retry_config=_RETRY)


def _credentials(key: str, secret: str, token: str | None) -> S3Config:
    keys: S3Config = {"access_key_id": key, "secret_access_key": secret}
    return {**keys, "session_token": token} if token else keys


def _shared_credentials() -> S3Config:
    """Return the keys of the profile in use from the shared credentials file, which obstore does not read."""
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials"
    parser = configparser.RawConfigParser()
    try:
        parser.read(file)
        profile = parser[os.environ.get("AWS_PROFILE") or "default"]
        return _credentials(
            profile["aws_access_key_id"], profile["aws_secret_access_key"], profile.get("aws_session_token")
        )
    except (configparser.Error, KeyError):
        return {}


@contextmanager
def obstore_errors() -> Iterator[None]:
    """Translate obstore's errors to OSError, without its debug output of many lines."""
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        message = str(error).partition("\n")[0]
        if "credential" in message.lower() or "169.254." in message:
            message += "; with an SSO or assume-role profile run `aws configure export-credentials --format env` first"
        raise OSError(message) from error
