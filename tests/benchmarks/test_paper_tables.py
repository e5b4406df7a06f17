"""The cells of the paper's tables that need no index."""

from __future__ import annotations

from benchmarks.paper_tables import cell, column, corpus_cells
from hirag_dist.core.text.tokens import encoding
from tests.shared_data import SHARED_DATA, needs_shared

MIX = SHARED_DATA / "qfs_mix" / "corpus.jsonl"
encode = encoding("cl100k_base").encode_ordinary


def test_the_list_counts_more_than_its_texts() -> None:
    documents, listed, alone = corpus_cells(["One text.\n", 'Another "text".'], encode)
    assert documents["ours"] == 2
    assert listed["ours"] == len(encode(r"""['One text.\n', 'Another "text".']"""))
    assert alone["ours"] == len(encode("One text.\n")) + len(encode('Another "text".'))
    assert not documents["equal"]


def test_a_cell_without_a_number_in_the_paper_is_neither_equal_nor_not() -> None:
    assert cell("Figure 4", "x", None, 0.5, "a curve")["equal"] is None
    assert cell("Table 3", "x", 61, 61, "counted")["equal"] is True


@needs_shared("qfs_mix/corpus.jsonl")
def test_table_3() -> None:
    cells = list(corpus_cells(column(MIX, "text"), encode))
    assert [(each["ours"], each["equal"]) for each in cells] == [(61, True), (625_948, True), (611_161, False)]
