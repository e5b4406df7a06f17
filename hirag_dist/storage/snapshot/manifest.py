"""Manifest of a snapshot: its files and content digests. A snapshot exists once its manifest is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, ValidationError

from hirag_dist.errors import SnapshotCorrupt, SnapshotTooNew
from hirag_dist.storage.layout import CHANGED, FORMAT_VERSION, SLOTS, STORED, UNUSED

MISSING_REPORTS_COUNT: Final = "missing_reports"  # among the counts of an index
UPDATE: Final = "update"  # note: UpdateNote
MISSING_REPORTS: Final = "reports"  # note: share of the reports that are written, and the number of missing ones
BLAKE3: Final = "blake3:"  # before digests of content; those of formats 1 and 2 are SHA-256 and have no prefix
Blocks = Iterable[bytes | memoryview]


class FileEntry(BaseModel):
    """A file of the snapshot.

    Attributes:
        bytes: size.
        sha256: hash (hex) that common tools compute.
        blake3: hash (hex) that is compared, since on a processor without instructions for SHA-256 it takes a tenth of
            the time; None of files that formats 1 and 2 listed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    sha256: str
    blake3: str | None = None

    def matches(self, blocks: Blocks) -> bool:
        """Return whether blocks of bytes, one after another, have the content of the file."""
        digest = blake3() if self.blake3 else hashlib.sha256()
        for block in blocks:
            digest.update(block)
        return digest.hexdigest() == (self.blake3 or self.sha256)


class OpenTexts(BaseModel):
    """Texts of one kind that are due and put off.

    Attributes:
        units: their number.
        stand_ins: those that rules wrote meanwhile.
        tokens: what writing them would cost, about.
    """

    model_config = ConfigDict(frozen=True)

    units: int
    tokens: int
    stand_ins: int = 0


class UpdateNote(BaseModel):
    """What an update notes in a manifest: how it went, and what the next one starts from besides the tables.

    Attributes:
        number: Number of updates since the index was built from nothing.
        base: id of the snapshot that it started from; None of a build from nothing.
        documents: documents that were added, changed and removed.
        other_changes: what else of the documents changed: titles, places, metadata.
        debt: texts that are due, by kind: `descriptions`, `summaries` and `reports`.
        descriptions, summaries, reports: numbers of texts that were written, kept and deferred.
        cost: Tokens of the extraction, those spent, and those of the budget; None for no limit.
        decisive: all that decides the content of the index, except its documents (`Build.decisive`).
        changed_since_detection: entities that changed since communities were last detected without a base.
        meta_types: Meta types that summaries are guided by.
        extraction_per_token: Tokens of the extraction for each token of the corpus, in the build from nothing.
        reply_tokens: Tokens of the reply of a summary and of a report, on average; a guess where none was written.
        replaced: keys of former texts of documents that a summary or report still derives from, by place.
        clustered_with: embedder of the hierarchy, where the vectors are another's.
        bill: rows of USAGE that were paid since the index was built from nothing; None where that is not known, and of
            a build from nothing, whose table `usage` has them.
        earlier_bill: in snapshots of earlier versions, rows of USAGE that were paid before.
        label_field: `reading.label_field` of the last build that named one; empty without.
    """

    model_config = ConfigDict(frozen=True)

    number: int = 0
    base: str | None = None
    documents: Mapping[str, int] = {}
    other_changes: tuple[str, ...] = ()
    debt: Mapping[str, OpenTexts] = {}
    descriptions: Mapping[str, int] = {}
    summaries: Mapping[str, int] = {}
    reports: Mapping[str, int] = {}
    cost: Mapping[str, int | None] = {}
    decisive: Mapping[str, Any] = {}
    changed_since_detection: int = 0
    meta_types: tuple[str, ...] = ()
    extraction_per_token: float = 0.0
    reply_tokens: tuple[float, float] = (350.0, 600.0)
    replaced: Mapping[str, tuple[int, ...]] = {}
    clustered_with: str = ""
    bill: tuple[Mapping[str, Any], ...] | None = None
    earlier_bill: tuple[Mapping[str, Any], ...] | None = None
    label_field: str = ""

    @property
    def debt_tokens(self) -> int:
        """Tokens of the texts that are put off, about."""
        return sum(part.tokens for part in self.debt.values())


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

    @cached_property
    def update(self) -> UpdateNote | None:
        """What the update that made the snapshot noted; None of an import, and of a snapshot of an early version."""
        note = self.notes.get(UPDATE)
        try:
            return None if note is None else UpdateNote.model_validate(note)
        except ValidationError:
            return None

    @property
    def slotted(self) -> frozenset[str]:
        """Tables whose rows lie in files of a former snapshot and in files of changed rows."""
        names = {name.rpartition("/")[2] for name in self.files}
        return frozenset(table for table, slots in SLOTS.items() if f"{slots}.npy" in names)

    def digest(self, name: str) -> tuple[Callable[[], Any], str]:
        """Return the hash function of the digest of a table or array, and this digest (hex)."""
        digest = self.content[name]
        return (blake3 if digest.startswith(BLAKE3) else hashlib.sha256), digest.removeprefix(BLAKE3)

    @property
    def is_divided(self) -> bool:
        """Whether files of a former snapshot, some of whose rows may be unused, hold rows of this one."""
        return bool(self.slotted or self.divided_tables)

    @property
    def divided_tables(self) -> frozenset[str]:
        """Tables of which most rows lie in the file of a former snapshot (`storage.snapshot.divided_tables`)."""
        return frozenset(name for name in self.counts if f"{CHANGED}{name}.parquet" in self.files)

    def table_bytes(self, name: str) -> int:
        """Return the size of the files of a table, 0 for a table that the snapshot does not have."""
        prefixes = (STORED, CHANGED, UNUSED) if name in self.divided_tables else ("",)
        files = [self.files.get(f"{prefix}{name}.parquet") for prefix in prefixes]
        return sum(file.bytes for file in files if file is not None)

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
