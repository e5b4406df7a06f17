"""Parameters of the built index and of its search."""

from __future__ import annotations

import pytest

from hirag_dist.retrieval.vector_index.milvus.index_params import choose_index, search_params


@pytest.mark.parametrize(
    ("lite", "n_rows", "kind"),
    [(True, 2_000, "flat"), (True, 2_001, "hnsw"), (False, 20_000, "flat"), (False, 20_001, "hnsw")],
)
def test_auto_goes_by_size(lite: bool, n_rows: int, kind: str) -> None:
    chosen = choose_index("auto", n_rows, lite=lite)
    assert (chosen.kind, chosen.named) == (kind, False)
    assert choose_index("auto", 10**6, lite=lite).build == {"M": 16, "efConstruction": 200}


@pytest.mark.parametrize(
    ("kind", "breadth", "limit", "expected"),
    [
        ("flat", 9, 36, {}),
        ("hnsw", None, 36, {"ef": 512}),
        ("hnsw", 64, 36, {"ef": 64}),
        ("hnsw", 64, 1016, {"ef": 1016}),  # Milvus refuses an ef below the limit
        ("ivf_flat", None, 36, {"nprobe": 133}),
        ("ivf_sq8", 10_000, 36, {"nprobe": 400}),  # there are no more lists
        ("scann", 40, 600, {"nprobe": 40, "reorder_k": 600}),
        ("diskann", None, 36, {"search_list": 512}),
    ],
)
def test_breadth_of_a_search(kind: str, breadth: int | None, limit: int, expected: dict[str, int]) -> None:
    assert search_params(kind, breadth, limit, 10_000, 400) == expected


@pytest.mark.parametrize(
    ("kind", "admitted", "expected"),
    [
        ("hnsw", 1.0, {"ef": 512}),
        ("hnsw", 0.5, {"ef": 1024}),
        ("hnsw", 0.0, {"ef": 10_000}),
        ("ivf_flat", 0.5, {"nprobe": 266}),
        ("flat", 0.01, {}),
    ],
)
def test_a_narrow_filter_widens_a_search(kind: str, admitted: float, expected: dict[str, int]) -> None:
    assert search_params(kind, None, 36, 10_000, 400, admitted) == expected
