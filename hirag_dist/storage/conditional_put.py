"""Compare-and-swap of small objects on S3: an object is replaced only if it still has the version that was read.

pyarrow.fs (26) has no conditional put. These few requests go through obstore instead, with the endpoint, region and
credentials of the pyarrow filesystem that everything else uses. Where a server answers that it has no conditional
puts, the version is compared before a plain put, which excludes no other writer between the two; a warning says so.
"""

from __future__ import annotations

import configparser
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyarrow import fs

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Store

logger = logging.getLogger(__name__)
_RETRY: RetryConfig = {"max_retries": 5, "retry_timeout": timedelta(seconds=20)}  # shorter than a lock lives
_NOT_IMPLEMENTED = "<Code>NotImplemented</Code>"  # the code of S3's protocol; the status is 501, of some servers 400


class S3ConditionalPut:
    """Reads and conditionally replaces objects below one root."""

    def __init__(self, filesystem: fs.S3FileSystem, root: str) -> None:
        """Open the bucket.

        Args:
            filesystem: where the options come from.
            root: bucket and folder, as pyarrow.fs writes them.
        """
        self._store = _open(filesystem, root)
        self._uri = f"s3://{root}"
        self._refused = False  # whether the server has answered that it has no conditional puts

    def read(self, path: str) -> tuple[bytes, str] | None:
        """Return an object and its version (ETag), None where there is no such object."""
        import obstore

        with _os_errors():
            try:
                found = obstore.get(self._store, path)
                return bytes(found.bytes()), found.meta["e_tag"] or ""
            except FileNotFoundError:
                return None

    def replace(self, path: str, data: bytes, version: str | None) -> str | None:
        """Write an object if it has this version, or is absent where the version is None.

        Returns:
            The new version; None where the object has another version.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        with _os_errors():
            try:
                if not self._refused:
                    mode: Literal["create"] | UpdateVersion = "create" if version is None else {"e_tag": version}
                    return obstore.put(self._store, path, data, mode=mode)["e_tag"] or ""
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                return None
            except BaseError as error:
                if _NOT_IMPLEMENTED not in str(error):
                    raise
                self._refused = True
                logger.warning(
                    "the object store of %s has no conditional puts: two builds that start at the same moment would "
                    "not exclude each other",
                    self._uri,
                )
            current = self.read(path)
            if (current and current[1]) != version:
                return None
            return obstore.put(self._store, path, data)["e_tag"] or ""


def _open(filesystem: fs.S3FileSystem, root: str) -> S3Store:
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
    with _os_errors():
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
def _os_errors() -> Iterator[None]:
    """Translate obstore's errors to OSError, without its debug output of many lines."""
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        message = str(error).partition("\n")[0]
        if "credential" in message.lower() or "169.254." in message:
            message += "; with an SSO or assume-role profile run `aws configure export-credentials --format env` first"
        raise OSError(message) from error
