"""Where things are in an index folder.

URI/
  current                     the id of the snapshot being served: writing it is going live
  snapshots/<id>/             immutable: Parquet tables, graph/*.npy, vectors/*.npy, serving-1/ derived from them,
                              manifest.json written last
  work/<stage>/<key>/         outputs of finished tasks and stages; safe to delete, they are made again
  ledger/                     every paid reply: *.log being written, *.seg sealed; never delete it, it was paid for
  build.json                  what the last build was given, did and spent; builds/ holds earlier ones
  batches/                    what is out at endpoints that take batches, a file each; deleting one forgets paid replies
  drops.json                  dead letters whose loss was accepted: by whom, when and why
  snapshot_history.json       which snapshot was current since when, for `prune`
  run.lock                    who is building
  milvus/                     Milvus Lite's file, made from the snapshot
  cache/<id>/                 serving files of snapshots that came without them; safe to delete, they are made again
"""

from __future__ import annotations

from typing import Final

CURRENT: Final = "current"
HISTORY: Final = "snapshot_history.json"
MANIFEST: Final = "manifest.json"
LEDGER: Final = "ledger"
LOCK: Final = "run.lock"
CACHE: Final = "cache"
BUILD: Final = "build.json"
BUILDS: Final = "builds"
BATCHES: Final = "batches"
DROPS: Final = "drops.json"

CONTENT_TABLES: Final = ("documents", "chunks", "entities", "relations", "clusters", "layers", "communities", "reports")
TABLES: Final = (*CONTENT_TABLES, "usage", "rejects")
DROPPED: Final = "dropped"  # a table that is there only where losses were accepted
ALIASES: Final = "aliases"  # a table that is there only where names were resolved to one entity
CLAIMS: Final = "claims"  # a table that is there only where there are claims
ENTITY_MENTIONS: Final = "entity_mentions"  # these three are there only where documents carry labels
STATEMENTS: Final = "statements"
SUMMARY_SOURCES: Final = "summary_sources"
LABEL_TABLES: Final = (ENTITY_MENTIONS, STATEMENTS, SUMMARY_SOURCES)
OPTIONAL_CONTENT: Final = (ALIASES, CLAIMS, *LABEL_TABLES)
OPTIONAL_TABLES: Final = (DROPPED, *OPTIONAL_CONTENT)
PARTS: Final = "vectors/parts"  # arrays that are there only where there are entities of several label sets
PART_ENTITIES: Final = "vectors/part_entities"
PART_SETS: Final = "vectors/part_sets"
PART_ARRAYS: Final = (PARTS, PART_ENTITIES, PART_SETS)
FORMAT_VERSION: Final = 1


def snapshot_path(snapshot_id: str) -> str:
    """Return a snapshot's folder."""
    return f"snapshots/{snapshot_id}"


def work_path(stage: str, key: str) -> str:
    """Return the folder of a stage's output."""
    return f"work/{stage}/{key}"
