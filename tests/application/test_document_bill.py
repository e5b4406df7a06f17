"""The bill by document: the sum is the bill to the last token, through updates and reports for questions."""

from __future__ import annotations

import pytest

from hirag_dist.application.document_bill import REMOVED, DocumentBill, document_bill
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
