"""Mentions from which a partially visible row is built."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hirag_dist.storage.access.label_files import Mentions
from hirag_dist.storage.serving.text_columns import TextColumns, text_schema, write_texts


def test_a_hub_is_told_from_its_first_thousand_mentions_in_reach(tmp_path: Path) -> None:
    """Row 2 has five mentions, row 7 three thousand, every other one of them in reach, row 9 one."""
    with (tmp_path / "texts.arrow").open("wb") as file:
        write_texts(file, text_schema(["name"]), [])
    counts = [5, 3000, 1]
    n = sum(counts)
    sets = (np.arange(n) % 2).astype(np.int32)
    mentions = Mentions(
        rows=np.array([2, 7, 9], np.int32),
        indptr=np.cumsum([0, *counts]).astype(np.int64),
        sets=sets,
        positions=np.zeros(n, np.int32),
        numbers=np.ones(n, np.bool_),
        texts=TextColumns(tmp_path / "texts.arrow"),
    )
    owners, places = mentions.visible(np.array([2, 7, 9]), np.array([False, True, False]))
    assert np.bincount(owners).tolist() == [2, 1000, 1]
    assert places.tolist() == [1, 3, *range(5, 2005, 2), 3005]
    owners, places = mentions.visible(np.array([9]), np.array([True, False, False]))
    assert (owners.tolist(), places.tolist()) == ([], [])
