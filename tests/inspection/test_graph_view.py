"""Content of the map: the most prominent entities, the heaviest relations, the largest communities."""

from __future__ import annotations

import pyarrow as pa

from hirag_dist.inspection import graph_view

Tables = dict[str, pa.Table]


def test_the_tiny_index_is_shown_whole(tiny: Tables) -> None:
    view = graph_view(tiny)
    assert view.entities["name"] == ["a", "b", "c", "S", "d", "e"]
    assert list(view.entities["degree"]) == [3, 3, 3, 2, 1, 0]
    assert view.communities["title"] == ["Friends", "The two", "c, d, …"]
    assert list(view.communities["parent"]) == [-1, 0, 0]
    assert view.communities["findings"][0] == [["They meet", "Often."]]
    assert list(view.entities["home"]) == [1, 1, 2, 1, 2, -1]  # e is alone in its community, which has no circle
    assert (view.relations["weight"][0], view.relations["source"][0], view.relations["target"][0]) == (3.0, 0, 1)
    assert (view.types, view.kinds) == (("person", "concept"), ("extracted", "summary"))
    assert view.totals == {"entities": 6, "relations": 7, "communities": 4}


def test_limits_keep_what_is_most_prominent(tiny: Tables) -> None:
    view = graph_view(tiny, max_entities=3, max_relations=2, max_communities=1)
    assert view.entities["name"] == ["a", "b", "c"]
    assert len(view.relations["source"]) == 2
    assert view.communities["title"] == ["Friends"]
    assert set(view.entities["home"]) == {0}


def test_an_empty_index_has_an_empty_view(empty: Tables) -> None:
    view = graph_view(empty)
    assert (len(view.entities["name"]), len(view.communities["title"]), view.layout.radius) == (0, 0, 0.0)
