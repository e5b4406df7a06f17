"""Serving files of claims, where a snapshot has some: texts by row, and the entities of each claim."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.access import visible_rows
from hirag_dist.schemas import CLAIMS
from hirag_dist.storage import layout
from hirag_dist.storage.serving.column_arrays import Batches, Create, Save, rows_of_column
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.text_columns import text_schema, write_texts
from hirag_dist.types import AccessFilter, ClaimItem

TEXTS: Final = "claims.arrow"
_SCHEMA: Final = text_schema(CLAIMS.names, wide=["description", "source_text"])


def write_claims(batches: Batches, create: Create, save: Save, entity_ids: pa.Array, chunk_ids: pa.Array) -> None:
    """Write the files of claims; none where the snapshot has no claim."""
    chunks = rows_of_column(batches, layout.CLAIMS, "chunk_id", chunk_ids)
    if not len(chunks):
        return
    with create(TEXTS) as file:
        filled = (
            pa.record_batch([pc.fill_null(column, "") for column in batch.columns], batch.schema.names)
            for batch in batches(layout.CLAIMS, _SCHEMA.names)
        )
        write_texts(file, _SCHEMA, filled)
    save("claim_chunks", chunks)
    subjects, objects = (
        rows_of_column(batches, layout.CLAIMS, name, entity_ids) for name in ("subject_id", "object_id")
    )
    save("claim_ends", np.column_stack([subjects, objects]))
    # The claims of which each entity is the subject, then those of which it is the object.
    claims = np.arange(len(subjects), dtype=np.int32)
    others = np.where(objects == subjects, -1, objects)  # a claim of an entity about itself is listed once
    owners, rows = np.concatenate([subjects, others]), np.concatenate([claims, claims])
    known = owners >= 0
    counts = np.bincount(owners[known], minlength=len(entity_ids))
    save("entity_claims_indptr", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    save("entity_claims", rows[known][np.argsort(owners[known], kind="stable")])


class MappedClaims:
    """The claims of one snapshot, mapped."""

    def __init__(self, files: ServingFiles) -> None:
        self._texts = files.texts(TEXTS)
        self._chunks: NDArray[np.int32] = files.array("claim_chunks")
        self._ends: NDArray[np.int32] = files.array("claim_ends")
        self._indptr: NDArray[np.int64] = files.array("entity_claims_indptr")
        self._rows: NDArray[np.int32] = files.array("entity_claims")

    def about(self, entities: Iterable[int], visible_chunks: NDArray[np.bool_] | None, limit: int) -> list[int]:
        """Return rows of claims about entities, each once, in the entities' order: as subject first, then by id.

        Args:
            visible_chunks: (n_chunks,) chunks whose claims are visible; None: all, those of unknown chunks too.
        """
        about: dict[int, None] = {}
        for entity in entities:
            rows = self._rows[self._indptr[entity] : self._indptr[entity + 1]]
            if visible_chunks is not None:
                chunks = self._chunks[rows]
                rows = rows[(chunks >= 0) & visible_chunks[chunks]]  # −1: an unknown chunk
            about |= dict.fromkeys(rows[:limit].tolist())
            if len(about) >= limit:
                break
        return list(about)[:limit]

    def items(self, rows: Iterable[int], access: AccessFilter | None) -> tuple[ClaimItem, ...]:
        """Return claims by row. The entity ids of a claim are included where the entity is visible.

        Args:
            access: filter of visible entities; None: all are.
        """
        claim_rows = list(rows)
        columns = (self._texts.values(name, claim_rows) for name in ClaimItem.__dataclass_fields__)
        claims = map(ClaimItem, *columns)
        if access is None:
            return tuple(claims)
        ends = self._ends[claim_rows]
        visible = (ends >= 0) & visible_rows(access, ends)
        return tuple(
            replace(claim, subject_id=claim.subject_id * subject, object_id=claim.object_id * thing)
            for claim, (subject, thing) in zip(claims, visible.tolist(), strict=True)
        )

    def n_visible(self, visible_chunks: NDArray[np.bool_]) -> int:
        """Return the number of claims of visible chunks."""
        known = self._chunks[self._chunks >= 0]
        return int(np.count_nonzero(visible_chunks[known]))
