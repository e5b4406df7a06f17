"""Names of the files and folders of an index.

URI/
  current                     the id of the snapshot being served: writing it is going live
  snapshots/<id>/             immutable: Parquet tables, graph/*.npy, vectors/*.npy, serving-2/ derived from them,
                              manifest.json written last; only read_files.parquet, which updates use, may be replaced
  reports/<id>/               reports written after the snapshot was published, part of the next one; a file each
  work/<stage>/<key>/         outputs of finished tasks and stages; safe to delete: they are written again
  ledger/                     every paid reply: *.log being written, *.seg sealed; never delete it
  build.json                  inputs, results and costs of the last build; builds/ has the earlier ones
  forget.json                 removed documents that are still to be forgotten, while `remove --forget` is not done
  purged.json                 an id of the last removal of replies: processes that began before it store no reply
  drops.json                  dead letters whose loss was accepted: by whom, when and why
  snapshot_history.json       which snapshot was current since when, for `prune`
  run.lock                    the lock of the build in progress
  milvus/                     Milvus Lite's file, derived from the snapshot
  cache/<id>/                 serving files of snapshots without them; safe to delete: they are derived again
"""

from __future__ import annotations

import re
from typing import Final

CURRENT: Final = "current"
SNAPSHOTS: Final = "snapshots"
HISTORY: Final = "snapshot_history.json"
MANIFEST: Final = "manifest.json"
WORK: Final = "work"
LEDGER: Final = "ledger"
LOCK: Final = "run.lock"
CACHE: Final = "cache"
BUILD: Final = "build.json"
BUILDS: Final = "builds"
DROPS: Final = "drops.json"
FORGET: Final = "forget.json"
PURGED: Final = "purged.json"

CONTENT_TABLES: Final = ("documents", "chunks", "entities", "relations", "clusters", "layers", "communities", "reports")
TABLES: Final = (*CONTENT_TABLES, "usage", "rejects")
DROPPED: Final = "dropped"  # an optional table: accepted losses
EXTRACTION_COSTS: Final = "extraction_costs"  # an optional table that is no part of the id, like `usage`
ALIASES: Final = "aliases"  # an optional table: names resolved to one entity
CLAIMS: Final = "claims"  # an optional table
PLACES: Final = "places"  # an optional table: positions in originals
ENTITY_MENTIONS: Final = "entity_mentions"  # optional tables of documents with labels, as the next two
STATEMENTS: Final = "statements"
SUMMARY_SOURCES: Final = "summary_sources"
LABEL_TABLES: Final = (ENTITY_MENTIONS, STATEMENTS, SUMMARY_SOURCES)
METADATA_FIELDS: Final = "metadata_fields"  # optional tables: declared fields of documents, and their values
DOCUMENT_METADATA: Final = "document_metadata"
METADATA_TABLES: Final = (METADATA_FIELDS, DOCUMENT_METADATA)
MENTIONS: Final = "mentions"  # optional tables: the update state, as the next three
RELATION_MENTIONS: Final = "relation_mentions"
SUMMARIES: Final = "summaries"
REPORT_INPUTS: Final = "report_inputs"
DESCRIPTION_DEBT: Final = "description_debt"  # an optional table: descriptions that an update put off
UPDATE_TABLES: Final = (MENTIONS, RELATION_MENTIONS, SUMMARIES, REPORT_INPUTS)
OPTIONAL_CONTENT: Final = (ALIASES, CLAIMS, PLACES, *LABEL_TABLES, *METADATA_TABLES, *UPDATE_TABLES, DESCRIPTION_DEBT)
OPTIONAL_TABLES: Final = (DROPPED, EXTRACTION_COSTS, *OPTIONAL_CONTENT)
PARTS: Final = "vectors/parts"  # optional arrays: vectors of entities by label set
PART_ENTITIES: Final = "vectors/part_entities"
PART_SETS: Final = "vectors/part_sets"
PART_ARRAYS: Final = (PARTS, PART_ENTITIES, PART_SETS)
STORED: Final = "stored_"  # prefix of files that a former snapshot wrote, some of whose rows may be unused
CHANGED: Final = "changed_"  # prefix of files of the rows that changed since
UNUSED: Final = "unused_"  # prefix of files with the row numbers of unused rows of tables
SLOTS: Final = {  # table → serving array that says where each of its rows lies
    "entities": "entity_slots",
    "relations": "relation_slots",
    "chunks": "chunk_slots",
    "reports": "report_slots",
}
VECTORS: Final = {"entities": "vectors/entities", "chunks": "vectors/chunks"}
FORMAT_VERSION: Final = 3  # of ids and manifests. Read as well: 1, with SHA-256 alone, and 2, where rows are divided


def pointer_id(data: bytes) -> str:
    """Return the snapshot id that the file `current` holds; "" where it is damaged and holds none."""
    text = data.decode("utf-8", "replace").strip()
    return text if re.fullmatch(r"[\w.-]{1,100}", text, re.ASCII) else ""


def is_snapshot_folder(name: str) -> bool:
    """Tell the name of a snapshot, or of its derived files, from one that something else has below an index."""
    return re.fullmatch(r"[0-9a-f]{16}(-[0-9a-f]{8})?", name) is not None


def snapshot_path(snapshot_id: str) -> str:
    """Return the folder of a snapshot."""
    return f"{SNAPSHOTS}/{snapshot_id}"


def read_files_path(snapshot_id: str) -> str:
    """Return the path of READ_FILES of a snapshot."""
    return f"{snapshot_path(snapshot_id)}/read_files.parquet"


def work_path(stage: str, key: str) -> str:
    """Return the folder of a stage's output."""
    return f"{WORK}/{stage}/{key}"
