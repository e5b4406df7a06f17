"""Inputs that summaries were written from, and the share that has changed since: rows of SUMMARIES."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.groupby import blocks_of
from hirag_dist.core.key_sets import KeySets
from hirag_dist.core.row_changes import one_array
from hirag_dist.indexing.stages.summarise import CLUSTER_SUMMARIES
from hirag_dist.schemas import SUMMARIES
from hirag_dist.types import IntVector

MODEL, STAND_IN = "model", "stand-in"
_COVERS = SUMMARIES.field("covers").type
_INPUTS = SUMMARIES.field("inputs").type
_BLOCK_ROWS = 65_536  # texts that are Python objects at a time
_BLOCK_INPUTS = 1 << 20  # inputs that are compared at a time, about


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of several texts: ids as numbers, and digests of what was shown of each.

    Attributes:
        indptr: (n_texts + 1,) int64.
        ids: (n_inputs,) int64; −1 for an id that does not exist any more.
        digests: (n_inputs,) int64.
    """

    indptr: IntVector
    ids: IntVector
    digests: IntVector

    @property
    def owners(self) -> IntVector:
        """(n_inputs,) the text of each input."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def between(self, first: int, end: int) -> Inputs:
        """Return the inputs of the texts [first, end)."""
        bounds = self.indptr[first : end + 1]
        own = slice(bounds[0], bounds[-1])
        return Inputs(bounds - bounds[0], self.ids[own], self.digests[own])

    def take(self, texts: IntVector) -> Inputs:
        """Return the inputs of some texts."""
        ids = KeySets(self.indptr, self.ids).take(texts)
        return Inputs(ids.indptr, ids.keys, KeySets(self.indptr, self.digests).take(texts).keys)


def digests_of(*columns: Sequence[str]) -> IntVector:
    """Return the digest of each row of texts. (n,) int64."""
    values = (
        int.from_bytes(
            blake2b("\x1f".join(row).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True
        )
        for row in zip(*columns, strict=True)
    )
    return np.fromiter(values, np.int64)


def changed_share(written: Inputs, now: Inputs) -> NDArray[np.float32]:
    """Return the share of each text's inputs that came, went or changed since it was written. (n_texts,), at most 1."""
    blocks = blocks_of(np.diff(written.indptr) + np.diff(now.indptr), _BLOCK_INPUTS)
    shares = [_changed_share(written.between(*bounds), now.between(*bounds)) for bounds in blocks]
    return np.concatenate([np.zeros(0, np.float32), *shares])


def _changed_share(written: Inputs, now: Inputs) -> NDArray[np.float32]:
    n_texts = len(now.indptr) - 1
    width = int(max(written.ids.max(initial=0), now.ids.max(initial=0))) + 1
    before = np.where(written.ids >= 0, written.owners * width + written.ids, -1)
    after = now.owners * width + now.ids
    order = np.argsort(before, kind="stable")
    place = np.minimum(np.searchsorted(before[order], after), max(len(before) - 1, 0))
    known, same = np.zeros(len(after), bool), np.zeros(len(after), bool)
    if len(before):
        at = order[place]
        known = before[at] == after
        same = known & (written.digests[at] == now.digests)
    n_same = np.bincount(now.owners[same], minlength=n_texts)
    n_now, n_before = np.diff(now.indptr), np.diff(written.indptr)
    n_both = np.bincount(now.owners[known], minlength=n_texts)
    changes = (n_now - n_both) + (n_before - n_both) + (n_both - n_same)
    share = changes / np.maximum(np.maximum(n_now, n_before), 1)
    return np.minimum(share, 1.0).astype(np.float32)


def member_inputs(members: pa.Table, entity_ids: pa.ChunkedArray) -> Inputs:
    """Return the inputs of clusters, of CLUSTER_MEMBERS, by rows of the layer's entities."""
    ids = one_array(members["member_ids"])
    shown = [one_array(members[name]).flatten() for name in ("names", "types", "descriptions")]
    digests = [np.zeros(0, np.int64)]
    for first in range(0, len(shown[0]), _BLOCK_ROWS):
        digests.append(digests_of(*(column.slice(first, _BLOCK_ROWS).to_pylist() for column in shown)))
    return Inputs(_bounds(ids), rows_of(pa.chunked_array([ids.flatten()]), entity_ids), np.concatenate(digests))


def written_inputs(lists: pa.ChunkedArray, ids: pa.ChunkedArray) -> Inputs:
    """Return stored inputs, by rows of `ids`.

    Args:
        lists: column `inputs` of SUMMARIES or REPORT_INPUTS.
        ids: of everything that can be an input now.
    """
    whole = one_array(lists)
    flat = whole.flatten()
    found = rows_of(pa.chunked_array([flat.field("id")]), ids)
    return Inputs(_bounds(whole), found, flat.field("digest").to_numpy(zero_copy_only=False))


def input_lists(indptr: IntVector, ids: pa.Array, digests: IntVector) -> pa.ListArray:
    """Return the column `inputs`."""
    fields = list(_INPUTS.value_type)
    structs = pa.StructArray.from_arrays([ids, pa.array(digests, pa.int64())], fields=fields)
    return pa.ListArray.from_arrays(pa.array(indptr, pa.int32()), structs, type=_INPUTS)


def summary_rows(
    layer: int,
    members: pa.Table,
    summaries: pa.Table,
    sources: KeySets,
    entity_ids: pa.ChunkedArray,
    origin: str,
    since: int,
) -> pa.Table:
    """Return SUMMARIES of clusters that were just written; founded with their members, nothing stale.

    Args:
        members: CLUSTER_MEMBERS, at least of these clusters.
        summaries: CLUSTER_SUMMARIES.
        origin: MODEL or STAND_IN.
        since: number of the update, for stand-ins, which are due at once.
    """
    at = rows_of(summaries["cluster_id"], members["cluster_id"])
    members = members.take(pa.array(at))
    inputs = member_inputs(members, entity_ids)
    ids = one_array(members["member_ids"])
    covers = one_array(summaries["covers"])
    flat = covers.flatten()
    owner = np.repeat(np.arange(len(covers)), np.diff(_bounds(covers)))
    member = inputs.indptr[owner] + flat.field("member").to_numpy(zero_copy_only=False)
    structs = pa.StructArray.from_arrays(
        [ids.flatten().take(pa.array(member)), *(flat.field(name) for name in ("entity", "description", "strength"))],
        fields=list(_COVERS.value_type),
    )
    n_rows = summaries.num_rows
    stand_in = origin == STAND_IN
    sizes = np.diff(inputs.indptr)
    columns = [
        pa.array(np.full(n_rows, layer), pa.int32()),
        summaries["cluster_id"].combine_chunks(),
        one_array(summaries["entities"]).cast(SUMMARIES.field("entities").type),
        pa.ListArray.from_arrays(pa.array(_bounds(covers), pa.int32()), structs, type=_COVERS),
        pa.array([origin] * n_rows, pa.string()),
        pa.array(sizes, pa.int32()),
        pa.array(np.zeros(n_rows), pa.int32()),
        input_lists(inputs.indptr, ids.flatten(), inputs.digests),
        sources.unions(inputs.owners, inputs.ids, n_rows).to_arrow(),
        pa.array(np.full(n_rows, 1.0 if stand_in else 0.0), pa.float32()),
        pa.array(np.full(n_rows, since if stand_in else 0), pa.int32()),
    ]
    return pa.table(columns, schema=SUMMARIES)


def as_summaries(rows: pa.Table, members: pa.Table, entity_ids: pa.ChunkedArray) -> pa.Table:
    """Return SUMMARIES as CLUSTER_SUMMARIES of the members of now; covers of members that left are gone.

    Args:
        rows: SUMMARIES of one layer.
        members: CLUSTER_MEMBERS of the layer.
    """
    at = rows_of(rows["cluster_id"], members["cluster_id"])
    ids = one_array(members["member_ids"])
    bounds = _bounds(ids)
    width = max(len(entity_ids), 1)
    owners = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    keys = owners * width + rows_of(pa.chunked_array([ids.flatten()]), entity_ids)
    order = np.argsort(keys, kind="stable")
    covers = one_array(rows["covers"])
    flat = covers.flatten()
    cluster = np.repeat(np.arange(len(covers)), np.diff(_bounds(covers)))
    member = rows_of(pa.chunked_array([flat.field("member_id")]), entity_ids)
    wanted = at[cluster] * width + member
    place = np.minimum(np.searchsorted(keys[order], wanted), max(len(keys) - 1, 0))
    entry = order[place] if len(keys) else np.zeros(len(wanted), np.int64)
    there = np.flatnonzero((member >= 0) & (keys[entry] == wanted)) if len(keys) else np.zeros(0, np.int64)
    kept = flat.take(pa.array(there))
    cover_type = CLUSTER_SUMMARIES.field("covers").type
    structs = pa.StructArray.from_arrays(
        [
            pa.array((entry - bounds[at[cluster]])[there], pa.int32()),
            *(kept.field(name) for name in ("entity", "description", "strength")),
        ],
        fields=list(cover_type.value_type),
    )
    counts = np.bincount(cluster[there], minlength=len(covers))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    columns = [
        rows["cluster_id"].combine_chunks(),
        one_array(rows["entities"]).cast(CLUSTER_SUMMARIES.field("entities").type),
        pa.ListArray.from_arrays(pa.array(indptr, pa.int32()), structs, type=cover_type),
    ]
    return pa.table(columns, schema=CLUSTER_SUMMARIES)


def _bounds(lists: pa.ListArray) -> IntVector:
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
