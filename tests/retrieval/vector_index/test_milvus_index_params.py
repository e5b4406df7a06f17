"""Parameters of the built index and of its search."""

from __future__ import annotations

import pytest

from hirag_dist.retrieval.vector_index.milvus.collection import choose_index, search_params


def test_the_index_goes_by_size() -> None:
    assert choose_index(2_000, 2_000).kind == "flat"
    assert choose_index(2_001, 2_000).kind == "hnsw"


@pytest.mark.parametrize(
    ("kind", "limit", "admitted", "expected"),
    [
        ("hnsw", 36, 1.0, {"ef": 512}),
        ("hnsw", 1016, 1.0, {"ef": 1016}),
        ("hnsw", 36, 0.5, {"ef": 1024}),
        ("hnsw", 36, 0.0, {"ef": 10_000}),
        ("flat", 36, 0.01, {}),
    ],
)
def test_a_narrow_filter_and_many_results_widen_a_search(
    kind: str, limit: int, admitted: float, expected: dict[str, int]
) -> None:
    assert search_params(kind, limit, 10_000, admitted) == expected
