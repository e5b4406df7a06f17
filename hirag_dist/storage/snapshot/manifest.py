"""Manifest of a snapshot: its files and content digests. A snapshot exists once its manifest is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from hirag_dist.errors import SnapshotCorrupt, SnapshotTooNew
from hirag_dist.storage.layout import FORMAT_VERSION

MISSING_REPORTS_COUNT: Final = "missing_reports"  # among the counts of an index
MISSING_REPORTS: Final = "reports"  # note: share of the reports that are written, and the number of missing ones


class FileEntry(BaseModel):
    """A file of the snapshot."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    sha256: str


class Manifest(BaseModel):
    """The manifest of one snapshot.

    Attributes:
        content: table or array name → digest of its content; the snapshot id is a hash of these.
        counts: rows by table.
        complete: whether every unit was done or its loss accepted; dead letters are in the table `rejects`, accepted
            ones in `dropped`.
        build: models, embedder, kernels, seed, and the configuration that decides content.
        notes: run facts outside the id, such as how communities match the snapshot before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: int
    snapshot_id: str
    created_at: str
    hirag_dist: str
    complete: bool
    dim: int
    embedder: str
    counts: Mapping[str, int]
    content: Mapping[str, str]
    build: Mapping[str, Any]
    notes: Mapping[str, Any]
    files: Mapping[str, FileEntry]

    @property
    def missing_reports(self) -> int:
        """Communities whose reports are not written, by `communities.report_share`; dead letters are not among them."""
        note = self.notes.get(MISSING_REPORTS)
        return int(note["missing"]) if isinstance(note, Mapping) else 0


def compute_snapshot_id(content: Mapping[str, str], embedder: str, dim: int) -> str:
    """Return the id of a snapshot with this content: 16 hex digits."""
    digest = hashlib.sha256(f"{FORMAT_VERSION}|{embedder}|{dim}".encode())
    for name in sorted(content):
        digest.update(f"|{name}={content[name]}".encode())
    return digest.hexdigest()[:16]


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Return a manifest from its bytes.

    Raises:
        SnapshotCorrupt: it is not one.
        SnapshotTooNew: a later version of hirag_dist wrote it.
    """
    try:
        loose = _Version.model_validate_json(data)
        if loose.format_version > FORMAT_VERSION:
            raise SnapshotTooNew(
                f"{where} has format {loose.format_version}, this hirag_dist reads up to {FORMAT_VERSION}: upgrade it"
            )
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SnapshotCorrupt(
            f"{where}/manifest.json is damaged: {first['msg']}; build again or serve another"
        ) from None


class _Version(BaseModel):
    format_version: int
