"""The bill of an index by document: what each document's extraction cost, and its share of what documents share.

Rules: the extraction of a chunk is its document's. Summaries, descriptions and the embedding of entities are shared by
documents in proportion to their mentions of the entities of layer 0: an entity counts 1, divided among the chunks that
mention it. A report's part of the bill for reports is by the length of its text, and is shared by the mentions of its
members of layer 0. The embedding of chunks is shared by their tokens. Shares are whole tokens that add up to the bill.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.graph.communities import membership
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.reports.material import report_text
from hirag_dist.errors import SnapshotError
from hirag_dist.indexing.update_summary import bill_rows
from hirag_dist.llm.usage import total_cost
from hirag_dist.storage.layout import DOCUMENT_METADATA, EXTRACTION_COSTS
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import FloatVector, IntVector


def apportion(total: int, weights: FloatVector | IntVector) -> IntVector:
    """Return whole shares of a total in proportion to weights, by the largest remainders; ties go to the first.

    Args:
        total: at least 0.
        weights: (n,) at least 0; where all are 0 the shares are equal. n ≥ 1, unless the total is 0.

    Returns:
        (n,) int64, whose sum is the total.

    >>> apportion(10, np.array([1, 1, 1])).tolist(), apportion(7, np.array([0.0, 0.0])).tolist()
    ([4, 3, 3], [4, 3])
    """
    wanted: FloatVector = np.asarray(weights, np.float64)
    if not len(wanted):
        return np.zeros(0, np.int64)
    whole = float(wanted.sum())
    exact = total * (wanted / whole if whole > 0 else np.full(len(wanted), 1 / len(wanted)))
    shares: IntVector = np.floor(exact).astype(np.int64)
    left = total - int(shares.sum())
    order = np.argsort(-(exact - shares), kind="stable")
    if left >= 0:
        shares[order[:left]] += 1
    else:  # the floors of very large totals
        shares[order[left:]] -= 1
    return shares


KINDS: Final = ("extraction", "summaries", "reports", "embeddings")
REMOVED: Final = "(not in the index any more)"
NO_VALUE: Final = "(none)"


@dataclass(frozen=True, slots=True)
class BillShare:
    """A document's share of the bill, or that of a group of documents.

    Attributes:
        name: of the group; of a document its path and record.
        document_id: empty for a group.
        documents: that it has.
        extraction, summaries, reports, embeddings: tokens, in and out.
        usd: None where a price is not known.
    """

    name: str
    document_id: str
    documents: int
    extraction: int
    summaries: int
    reports: int
    embeddings: int
    usd: float | None

    @property
    def tokens(self) -> int:
        """Tokens of all kinds."""
        return self.extraction + self.summaries + self.reports + self.embeddings


@dataclass(frozen=True)
class DocumentBill:
    """The bill by document.

    Attributes:
        shares: a row for each document in the order of the index, and one for removed documents where there is any.
        tokens: of the bill: the sum of the shares.
        calls: of the bill.
        usd: of the bill; None where a price is not known.
    """

    shares: tuple[BillShare, ...]
    tokens: int
    calls: int
    usd: float | None


def document_bill(snapshot: Snapshot) -> DocumentBill:
    """Return the bill of a snapshot by document, since its index was built from nothing.

    Memory: the ids of entities and chunks, the members of communities, the texts of reports.

    Raises:
        SnapshotError: it was updated by an earlier version, which did not record the bill before the update.
    """
    note = snapshot.manifest.notes.get("update") or {}
    rows = bill_rows(snapshot)
    if rows is None:
        raise SnapshotError(
            f"snapshot {snapshot.manifest.snapshot_id} was updated by a version that did not record what was paid "
            "before; the next build from nothing (`index --rebuild`, with found replies) records it"
        )
    documents = snapshot.table("documents", ["document_id", "uri", "record"])
    chunks = snapshot.table("chunks", ["chunk_id", "document_id", "n_tokens"])
    n_documents = documents.num_rows
    home = rows_of(chunks["document_id"], documents["document_id"])
    sizes = _summed(home, chunks["n_tokens"].to_numpy(), n_documents)
    mentions = _Mentions.read(snapshot, chunks["chunk_id"], home, n_documents)
    extracted = _extracted(snapshot, chunks["chunk_id"], home, n_documents)
    weights: dict[str, FloatVector | IntVector] = {
        "extraction": extracted,
        "summaries": mentions.by_document(),
        "reports": _report_weights(snapshot, mentions),
        "embeddings": mentions.by_document(),
        "chunks": sizes,
    }
    totals = _totals(rows)
    tokens = {kind: np.zeros(n_documents, np.int64) for kind in KINDS}
    usd = np.zeros(n_documents)
    removed = 0
    removed_usd = 0.0
    for part, (n_tokens, cost) in totals.items():
        here = n_tokens
        if part == "extraction" and int(note.get("number", 0)):
            here = min(n_tokens, int(extracted.sum()))  # the rest was paid for documents that were removed or changed
            removed, removed_usd = n_tokens - here, cost * (n_tokens - here) / max(n_tokens, 1)
        shown = weights[part] if weights[part].sum() else sizes
        share = apportion(here, shown)
        kind = "embeddings" if part == "chunks" else part
        tokens[kind] += share
        usd += (cost - (removed_usd if part == "extraction" else 0.0)) * share / max(here, 1)
    is_known = total_cost(row["cost_usd"] for row in rows) is not None
    shares = [
        BillShare(
            f"{row['uri']}#{row['record']}" if row["record"] else row["uri"],
            row["document_id"],
            1,
            **{kind: int(tokens[kind][at]) for kind in KINDS},
            usd=float(usd[at]) if is_known else None,
        )
        for at, row in enumerate(documents.to_pylist())
    ]
    if removed:
        shares.append(BillShare(REMOVED, "", 0, removed, 0, 0, 0, removed_usd if is_known else None))
    total = sum(n_tokens for n_tokens, _ in totals.values())
    n_calls = sum(row["calls"] for row in rows)
    return DocumentBill(tuple(shares), total, n_calls, total_cost(row["cost_usd"] for row in rows))


def grouped(bill: DocumentBill, groups: Mapping[str, str]) -> tuple[BillShare, ...]:
    """Return the shares of groups of documents, the largest first.

    Args:
        groups: document id → its group. Removed documents are a group of their own.
    """
    found: dict[str, list[BillShare]] = {}
    for share in bill.shares:
        name = groups.get(share.document_id, NO_VALUE) if share.document_id else share.name
        found.setdefault(name, []).append(share)
    rows = [
        BillShare(
            name,
            "",
            sum(share.documents for share in shares),
            **{kind: sum(getattr(share, kind) for share in shares) for kind in KINDS},
            usd=total_cost(share.usd for share in shares),
        )
        for name, shares in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.tokens, row.name)))


def folders(snapshot: Snapshot, depth: int) -> dict[str, str]:
    """Return the folder of each document, its first `depth` parts at most; "." for none."""
    table = snapshot.table("documents", ["document_id", "uri"])
    return {row["document_id"]: _folder(row["uri"], depth) for row in table.to_pylist()}


def metadata_values(snapshot: Snapshot, field: str) -> dict[str, str]:
    """Return the value of a metadata field of each document that has one; several values are one text.

    Raises:
        SnapshotError: the index has no such field.
    """
    known = snapshot.table("metadata_fields", ["name"])["name"].to_pylist()
    if field not in known:
        said = f"there are: {', '.join(known)}" if known else "it has none"
        raise SnapshotError(f"the index has no metadata field {field!r}; {said}")
    stored = snapshot.table(DOCUMENT_METADATA).to_pylist()
    found = {row["document_id"]: json.loads(row["metadata"]).get(field) for row in stored}
    return {own: _as_text(value) for own, value in found.items() if value not in (None, [], "")}


@dataclass(frozen=True)
class _Mentions:
    """Mentions of the entities of layer 0 by document: rows (entity, document, share of the entity's mentions).

    Attributes:
        entity_ids: of all entities.
    """

    entity_ids: pa.ChunkedArray
    entities: IntVector
    documents: IntVector
    shares: FloatVector
    n_documents: int

    @classmethod
    def read(cls, snapshot: Snapshot, chunk_ids: pa.ChunkedArray, home: IntVector, n_documents: int) -> _Mentions:
        table = snapshot.table("entities", ["entity_id", "chunk_ids"])
        lists = table["chunk_ids"].combine_chunks()
        counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        entities = np.repeat(np.arange(len(counts)), counts)
        at = rows_of(pa.chunked_array([lists.flatten()]), chunk_ids)
        documents = np.where(at >= 0, home[at], -1)
        known = documents >= 0
        return cls(table["entity_id"], entities[known], documents[known], 1.0 / counts[entities[known]], n_documents)

    def by_document(self) -> FloatVector:
        """Return (n_documents,) the entities that are each document's, in shares."""
        found: FloatVector = np.bincount(self.documents, self.shares, self.n_documents).astype(np.float64)
        return found

    def of(self, indptr: IntVector, members: IntVector, weights: FloatVector) -> FloatVector:
        """Return (n_documents,) the weights of groups of entities, shared by the mentions of their members.

        Args:
            indptr, members: CSR of entity rows of each group.
            weights: (n_groups,).
        """
        mass = np.zeros(len(self.entity_ids))
        np.add.at(mass, self.entities, self.shares)
        group = np.repeat(np.arange(len(weights)), np.diff(indptr))
        whole = np.bincount(group, mass[members], len(weights))
        each = np.where(whole > 0, weights / np.where(whole > 0, whole, 1.0), 0.0)
        by_entity = np.bincount(members, each[group], len(self.entity_ids))
        own = self.shares * by_entity[self.entities]
        found: FloatVector = np.bincount(self.documents, own, self.n_documents).astype(np.float64)
        return found


def _report_weights(snapshot: Snapshot, mentions: _Mentions) -> FloatVector:
    """Return the weights of documents for reports, by the length of the reports that a model wrote."""
    reports = snapshot.table("reports").to_pylist()
    lengths = {row["community_id"]: len(report_text(row)) for row in reports if row["origin"] == "model"}
    communities = snapshot.table("communities", ["community_id", "entity_ids"])
    asked = communities.filter(pc.is_in(communities["community_id"], value_set=pa.array(list(lengths), pa.string())))
    if not asked.num_rows:
        return np.zeros(mentions.n_documents)
    indptr, members = membership(asked, mentions.entity_ids)
    weights = np.array([lengths[own] for own in asked["community_id"].to_pylist()], np.float64)
    return mentions.of(indptr, members.astype(np.int64), weights)


def _extracted(snapshot: Snapshot, chunk_ids: pa.ChunkedArray, home: IntVector, n_documents: int) -> IntVector:
    costs = snapshot.table(EXTRACTION_COSTS, ["chunk_id", "tokens"])
    at = rows_of(costs["chunk_id"], chunk_ids)
    known = at >= 0
    return _summed(home[at[known]], costs["tokens"].to_numpy()[known], n_documents)


def _summed(home: IntVector, values: IntVector, n_documents: int) -> IntVector:
    found = np.zeros(n_documents, np.int64)
    known = home >= 0
    np.add.at(found, home[known], values[known])
    return found


def _totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, float]]:
    """Return the tokens and dollars of the bill by part: the kinds, and "chunks" for their embedding."""
    found = dict.fromkeys((*KINDS, "chunks"), (0, 0.0))
    for row in rows:
        part = _part(row["stage"], row["role"])
        tokens, usd = found[part]
        found[part] = tokens + row["input_tokens"] + row["output_tokens"], usd + (row["cost_usd"] or 0.0)
    return found


def _part(stage: str, role: str) -> str:
    if role == "embed":
        return "chunks" if stage.startswith("chunk vectors") else "embeddings"
    if stage.startswith(("extract", "claims")):
        return "extraction"
    return "reports" if stage.startswith("reports") else "summaries"


def _folder(uri: str, depth: int) -> str:
    scheme, mark, path = uri.rpartition("://")
    parts = path.split("/")[:-1]
    first = 1 if parts and not parts[0] else 0  # of an absolute path
    return f"{scheme}{mark}{'/'.join(parts[: depth + first])}" or "."


def _as_text(value: Any) -> str:
    values: Iterable[Any] = value if isinstance(value, list) else [value]
    return ", ".join(sorted(map(str, values)))
