"""The serving files of labels, mapped (`storage.access.label_files_writer` writes them)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import Config
from hirag_dist.core.access.filter import spans
from hirag_dist.core.access.labels import Flags, LabelPatterns
from hirag_dist.storage import layout
from hirag_dist.storage.access import label_files_writer
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.text_columns import TextColumns
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import FloatMatrix, IntVector

_MAX_MENTIONS = 1000  # of a row, for its text: a hub has one in every chunk


@dataclass(frozen=True, slots=True)
class Mentions:
    """The mentions of rows with several label sets, or several documents: CSR over these rows, and columns by mention.

    Attributes:
        rows: (n,) int32, ascending.
        indptr: (n + 1,) int64 first mention of each row.
        sets: (n_mentions,) int32 label set, or chunk, of each, in the order of chunks.
        positions: (n_mentions,) int32 of each in the reply for its chunk.
        numbers: (n_mentions,) whether an entity is described, or the strength of a relation.
    """

    rows: NDArray[np.int32]
    indptr: NDArray[np.int64]
    sets: NDArray[np.int32]
    positions: NDArray[np.int32]
    numbers: NDArray[Any]
    texts: TextColumns

    def visible(self, rows: IntVector, in_reach: Flags) -> tuple[IntVector, IntVector]:
        """Return (owners, positions): the first visible mentions of some of the rows, and the row of each."""
        at = np.searchsorted(self.rows, rows)
        owners, positions = spans(self.indptr[at], self.indptr[at + 1])
        reached = in_reach[self.sets[positions]]
        owners, positions = owners[reached], positions[reached]
        first = np.searchsorted(owners, np.arange(len(rows)))
        kept = np.arange(len(owners)) - first[owners] < _MAX_MENTIONS
        return owners[kept], positions[kept]

    def by_row(self, rows: IntVector, in_reach: Flags, names: Iterable[str]) -> list[list[tuple[Any, ...]]]:
        """Return the first visible mentions of each row: (position in its reply, number, text of each name)."""
        owners, at = self.visible(rows, in_reach)
        places = at.tolist()
        texts = (self.texts.values(name, places) for name in names)
        mentions = list(zip(self.positions[at].tolist(), self.numbers[at].tolist(), *texts, strict=True))
        bounds = np.searchsorted(owners, np.arange(len(rows) + 1)).tolist()
        return [mentions[first:last] for first, last in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class LabelFiles:
    """The label files of an index, mapped.

    Attributes:
        chunk_sets: (n_chunks,) int32 label set.
        entities, relations, communities: the label sets of their sources.
        mentions, statements: of entities, and of relations.
        part_vectors: (n_parts, dim) float32.
        part_entities, part_sets: (n_parts,) int32 entity row, ascending, and label set.
        max_tokens: of a description, in the build.
    """

    chunk_sets: NDArray[np.int32]
    entities: LabelPatterns
    relations: LabelPatterns
    communities: LabelPatterns
    mentions: Mentions
    statements: Mentions
    part_vectors: FloatMatrix
    part_entities: NDArray[np.int32]
    part_sets: NDArray[np.int32]
    max_tokens: int

    def has_set(self, label_set: int) -> bool:
        """Return whether any row comes from documents of this label set."""
        patterns = (self.entities, self.relations, self.communities)
        return any((rows.sets == label_set).any() for rows in patterns) or bool((self.chunk_sets == label_set).any())


def read_label_sets(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """Return the label sets of a snapshot's documents, by number.

    Raises:
        SnapshotCorrupt: their file cannot be read.
    """
    texts = snapshot.serving.texts(label_files_writer.LABEL_SETS)
    return [tuple(json.loads(text)) for text in texts.values("labels", range(texts.n_rows))]


def map_labels(snapshot: Snapshot) -> LabelFiles:
    """Return the files of an index whose documents carry labels.

    Raises:
        SnapshotCorrupt: one cannot be read.
    """
    files = snapshot.serving
    vectors: FloatMatrix = np.zeros((0, snapshot.manifest.dim), np.float32)
    entities = sets = np.zeros(0, np.int32)
    if layout.PARTS in snapshot.manifest.content:
        vectors, entities, sets = (snapshot.array(name) for name in layout.PART_ARRAYS)
    return LabelFiles(
        chunk_sets=files.array("chunk_sets"),
        entities=_patterns(files, "entity"),
        relations=_patterns(files, "relation"),
        communities=_patterns(files, "community"),
        mentions=map_mentions(files, "sets"),
        statements=map_statements(files, "sets"),
        part_vectors=vectors,
        part_entities=entities,
        part_sets=sets,
        max_tokens=description_tokens(snapshot.manifest),
    )


def description_tokens(manifest: Manifest) -> int:
    """Return the tokens of a description in the build of a snapshot."""
    built = manifest.build.get("config", {})
    return int(built.get("description_tokens", Config.model_fields["description_tokens"].default))


def _patterns(files: ServingFiles, what: str) -> LabelPatterns:
    return LabelPatterns(
        of=files.array(f"{what}_patterns"),
        indptr=files.array(f"{what}_pattern_indptr"),
        sets=files.array(f"{what}_pattern_sets"),
        divisible=files.array(f"{what}_pattern_divisible"),
    )


def map_mentions(files: ServingFiles, places: str) -> Mentions:
    """Return the kept mentions of entities.

    Args:
        places: sets, or chunks: what `Mentions.sets` holds.
    """
    return _mentions(
        files, "mentioned", f"mention_{places}", "mention", "described", label_files_writer.ENTITY_MENTIONS
    )


def map_statements(files: ServingFiles, places: str) -> Mentions:
    """Return the kept mentions of relations; the arguments are those of `map_mentions`."""
    return _mentions(files, "stated", f"statement_{places}", "statement", "strengths", label_files_writer.STATEMENTS)


def _mentions(files: ServingFiles, rows: str, places: str, each: str, numbers: str, texts: str) -> Mentions:
    return Mentions(
        rows=files.array(f"{rows}_rows"),
        indptr=files.array(f"{rows}_indptr"),
        sets=files.array(places),
        positions=files.array(f"{each}_positions"),
        numbers=files.array(f"{each}_{numbers}"),
        texts=files.texts(texts),
    )
