"""Options of uploads, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field

from hirag_dist.errors import ConfigError


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """Folder, limits and access of uploads.

    Attributes:
        folder: local folder in which uploaded documents are kept.
        index: local folder of the index.
        command: of the process that plans and updates: JSON on its standard input, JSON lines on its standard output.
        payload: configuration of that process, as text; it may hold secrets.
        callers_file: the callers file of the service; None without one.
        callers_grace_s: seconds for which callers stay valid when that file is gone.
        anonymous: labels of callers if there is no callers file; None if they see everything.
        max_bytes: of the files of one upload.
        max_file_bytes: of one file.
        max_files: of one upload.
        stall_s: seconds for which a browser may send nothing of a file.
        stop_s: seconds that the process has to end after it was cancelled.

    Raises:
        ConfigError: the index is no local folder.
    """

    folder: str
    index: str
    command: tuple[str, ...]
    payload: str = field(repr=False)
    callers_file: str | None = None
    callers_grace_s: float = 60.0
    anonymous: frozenset[str] | None = frozenset()
    max_bytes: int = 256 << 20
    max_file_bytes: int = 256 << 20
    max_files: int = 1000
    stall_s: float = 15.0
    stop_s: float = 60.0

    def __post_init__(self) -> None:
        if "://" in self.index:
            raise ConfigError(
                f"service.http_uploads is for an index in a local folder, and {self.index} is none; add documents with "
                "`hirag-dist add`"
            )
