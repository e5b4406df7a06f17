"""Errors of filesystems as errors of the store, with a message that says what to do and no credentials."""

from __future__ import annotations

import errno

from hirag_dist.errors import StoreError


def store_error(error: BaseException, verb: str, where: str) -> StoreError:
    """Return the error of a file that could not be read or written.

    Args:
        verb: the operation, such as "read".
        where: the file, without credentials.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENOSPC or "No space left" in str(error):
        return StoreError(f"cannot {verb} {where}: the disk is full; free space and run again, finished work is kept")
    if number == errno.EROFS or "Read-only file system" in str(error):
        return StoreError(
            f"cannot {verb} {where}: the filesystem is read-only; if it became so after an error of the disk, check "
            "the disk, mount it for writing and run again, finished work is kept"
        )
    if number in (errno.EACCES, errno.EPERM) or "Permission denied" in str(error):
        return StoreError(f"cannot {verb} {where}: permission denied")
    if number in (errno.EEXIST, errno.ENOTDIR):
        return StoreError(f"cannot {verb} {where}: a file is in the place of a folder on that path")
    if number == errno.ENOENT or isinstance(error, FileNotFoundError):
        return StoreError(f"cannot {verb} {where}: it is not there")
    cure = next((f"; {cure}" for part, cure in _CURES.items() if part in str(error)), "")
    return StoreError(f"cannot {verb} {where}: {one_line_of(error)}{cure}")


_CURES = {  # part of an error of an object store → the variables to look at
    "NETWORK_CONNECTION": "check AWS_ENDPOINT_URL or endpoint_override, the region, and the network",
    "error trying to connect": "check AWS_ENDPOINT_URL or endpoint_override, the region, and the network",
    "builder error": "check AWS_ENDPOINT_URL or endpoint_override: expected http://HOST:PORT or https://HOST",
    "ACCESS_DENIED": "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and the rights on the bucket",
    "INVALID_ACCESS_KEY_ID": "check AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL",
    "SIGNATURE_DOES_NOT_MATCH": "check AWS_SECRET_ACCESS_KEY and the region",
    "NO_SUCH_BUCKET": "check the name of the bucket and AWS_ENDPOINT_URL",
}


def without_credentials(uri: str) -> str:
    """Return a URI as messages show it: without user, password and options."""
    scheme, mark, rest = uri.partition("://")
    if not mark:
        return uri
    location = rest.partition("?")[0]
    host, slash, path = location.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}".rstrip("/")


def one_line_of(error: BaseException) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
