"""The bill by document: the sum is the bill to the last token, through updates and reports for questions."""

from __future__ import annotations

import pytest

from hirag_dist.application.document_bill import REMOVED, DocumentBill, document_bill, folders, grouped, metadata_values
from hirag_dist.errors import SnapshotError
from hirag_dist.storage.snapshot.reader import Snapshot
from tests.indexing.test_updates import LivingBench, corpus, living, text

__all__ = ["living"]


def paid(snapshot: Snapshot) -> int:
    """Return the tokens of USAGE."""
    return sum(row["input_tokens"] + row["output_tokens"] for row in snapshot.table("usage").to_pylist())


def extraction_by_document(snapshot: Snapshot) -> dict[str, int]:
    home = {row["chunk_id"]: row["document_id"] for row in snapshot.table("chunks").to_pylist()}
    found: dict[str, int] = {}
    for row in snapshot.table("extraction_costs").to_pylist():
        found[home[row["chunk_id"]]] = found.get(home[row["chunk_id"]], 0) + row["tokens"]
    return found


def total(bill: DocumentBill) -> int:
    assert bill.tokens == sum(share.tokens for share in bill.shares)
    return bill.tokens


@pytest.mark.integration
def test_shares_add_up_to_the_bill_through_updates(living: LivingBench) -> None:
    first = living.index(corpus(6))
    bill = document_bill(first)
    assert total(bill) == paid(first) > 0
    assert {share.document_id: share.extraction for share in bill.shares} == extraction_by_document(first)
    assert all(share.summaries and share.reports for share in bill.shares)
    assert bill.calls == sum(row["calls"] for row in first.table("usage").to_pylist())

    second = living.index(corpus(6) | {"00.txt": text("sun", 99)})
    after = document_bill(second)
    assert total(after) == paid(first) + paid(second)
    removed = next(share for share in after.shares if share.name == REMOVED)
    gone = set(extraction_by_document(first)) - set(extraction_by_document(second))
    assert removed.extraction == sum(extraction_by_document(first)[own] for own in gone)
    third = living.remove(next(iter(extraction_by_document(second))))
    assert total(document_bill(third)) == total(after) + paid(third)


def test_groups_add_up_and_unknown_ones_are_refused(living: LivingBench) -> None:
    first = living.index(corpus(4))
    bill = document_bill(first)
    names = {share.document_id: share.name for share in bill.shares}
    groups = {own: "even" if int(name[:2]) % 2 == 0 else "odd" for own, name in names.items()}
    rows = grouped(bill, groups)
    assert {row.name: row.documents for row in rows} == {"even": 2, "odd": 2}
    assert sum(row.tokens for row in rows) == bill.tokens
    assert set(folders(first, 1).values()) == {"."}
    with pytest.raises(SnapshotError, match="no metadata field 'team'"):
        metadata_values(first, "team")
