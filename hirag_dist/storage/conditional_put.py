"""Compare-and-swap of small objects on S3: an object is replaced only if it still has the version that was read.

pyarrow.fs (26) has no conditional put. These few requests go through obstore instead, with the endpoint, region and
credentials of the pyarrow filesystem that everything else uses. Where a server answers that it has no conditional
puts, the version is compared before a plain put, which excludes no other writer between the two; a warning says so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from pyarrow import fs

from hirag_dist.config.object_stores import obstore_errors, open_s3

if TYPE_CHECKING:
    from obstore import UpdateVersion

logger = logging.getLogger(__name__)
_NOT_IMPLEMENTED = "<Code>NotImplemented</Code>"  # the code of S3's protocol; the status is 501, of some servers 400


class S3ConditionalPut:
    """Reads and conditionally replaces objects below one root."""

    def __init__(self, filesystem: fs.S3FileSystem, root: str) -> None:
        """Open the bucket and folder of `root`, as pyarrow.fs writes them, with the options of a filesystem."""
        self._store = open_s3(filesystem, root)
        self._uri = f"s3://{root}"
        self._refused = False  # whether the server has answered that it has no conditional puts

    def read(self, path: str) -> tuple[bytes, str] | None:
        """Return an object and its version (ETag), None where there is no such object."""
        import obstore

        with obstore_errors():
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

        with obstore_errors():
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
