from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.core.key_sets import LIST, key_sets
from hirag_dist.indexing import written
from hirag_dist.indexing.stages.memberships import CLUSTER_MEMBERS
from hirag_dist.indexing.stages.summarise import CLUSTER_SUMMARIES
from hirag_dist.indexing.written import (
    MODEL,
    STAND_IN,
    Inputs,
    as_summaries,
    changed_share,
    digests_of,
    member_inputs,
    summary_rows,
    written_inputs,
)
from hirag_dist.schemas import SUMMARIES

Text = Mapping[int, int]  # id (−1: it does not exist any more) → digest
IDS = pa.chunked_array([pa.array([f"e{number}" for number in range(6)])])


def inputs(texts: Sequence[Sequence[tuple[int, int]]]) -> Inputs:
    pairs = [pair for text in texts for pair in text]
    indptr = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return Inputs(indptr, *(np.array([pair[part] for pair in pairs], np.int64) for part in (0, 1)))


GONE = (-1, 14)
TEXT = st.dictionaries(st.integers(0, 5), st.integers(0, 2), max_size=5)


@given(st.lists(st.tuples(TEXT, st.integers(0, 3), TEXT), max_size=4))
def test_shares_are_those_of_python(texts: list[tuple[Text, int, Text]]) -> None:
    wanted = []
    for before, n_gone, now in texts:
        same = sum(before.get(own) == digest for own, digest in now.items())
        n_both = len(before.keys() & now.keys())
        changes = len(now) + len(before) + n_gone - n_both - same
        largest = max(len(now), len(before) + n_gone, 1)
        wanted.append(np.float32(min(changes / largest, 1)))
    written = inputs([[*before.items(), *([GONE] * n_gone)] for before, n_gone, _ in texts])
    assert changed_share(written, inputs([list(now.items()) for _, _, now in texts])).tolist() == wanted


def test_digests_depend_on_every_text_and_where_it_ends() -> None:
    digests = digests_of(["a", "a", "b", "ab"], ["b", "b", "a", ""])
    assert digests.dtype == np.int64
    assert digests[0] == digests[1]
    assert len(set(digests.tolist())) == 3
    assert digests_of([], []).tolist() == []
    assert digests_of(["\ud800"]).tolist() != digests_of(["?"]).tolist(), "half a pair is a text too"


def cluster_members(clusters: Mapping[str, Sequence[str]], description: str = "Of old.") -> pa.Table:
    return pa.table(
        [
            list(clusters),
            list(clusters.values()),
            [[own.upper() for own in own_ids] for own_ids in clusters.values()],
            [["concept" for _ in own_ids] for own_ids in clusters.values()],
            [[f"{own}. {description}" for own in own_ids] for own_ids in clusters.values()],
        ],
        schema=CLUSTER_MEMBERS,
    )


MEMBERS = cluster_members({"c": ["e1", "e0"], "d": ["e2", "e3", "e4"], "e": ["e5"]})
REPLIES: list[dict[str, Any]] = [
    {
        "cluster_id": "d",
        "entities": [{"name": "X", "type": "group", "description": "x"}, {"name": "Y", "type": "", "description": ""}],
        "covers": [
            {"member": 2, "entity": 0, "description": "is one", "strength": 5.0},
            {"member": 0, "entity": 1, "description": "", "strength": 1.0},
            {"member": 2, "entity": 1, "description": "again", "strength": 2.5},
        ],
    },
    {"cluster_id": "e", "entities": [{"name": "Z", "type": "t", "description": "z"}], "covers": []},
    {
        "cluster_id": "c",
        "entities": [{"name": "W", "type": "t", "description": "w"}],
        "covers": [{"member": 1, "entity": 0, "description": "first", "strength": 9.0}],
    },
]
SUMMARY_TABLE = pa.Table.from_pylist(REPLIES, schema=CLUSTER_SUMMARIES)
SOURCES_OF = {"e0": [1], "e1": [1], "e2": [2], "e3": [2, 3], "e4": [3]}
SOURCES = key_sets(pa.chunked_array([pa.array([SOURCES_OF.get(own, []) for own in IDS.to_pylist()], LIST)]))


def stored(origin: str = MODEL) -> pa.Table:
    return summary_rows(4, MEMBERS, SUMMARY_TABLE, SOURCES, IDS, origin, since=7)


def test_summaries_are_kept_by_the_ids_of_their_members_and_stand_ins_are_due_at_once() -> None:
    rows = {row["cluster_id"]: row for row in stored().to_pylist()}
    assert stored().schema == SUMMARIES
    for origin, share, since in ((MODEL, 0.0, 0), (STAND_IN, 1.0, 7)):
        own = {"layer": 4, "origin": origin, "n_turned": 0, "stale_share": share, "stale_since": since}
        assert all(row.items() >= own.items() for row in stored(origin).to_pylist())
    assert [cover["member_id"] for cover in rows["d"]["covers"]] == ["e4", "e2", "e4"]
    assert rows["c"]["covers"] == [{"member_id": "e0", "entity": 0, "description": "first", "strength": 9.0}]
    assert rows["e"]["covers"] == []
    found = {name: (row["sources"], row["n_founded"]) for name, row in rows.items()}
    assert found == {"c": ([1], 2), "d": ([2, 3], 3), "e": ([], 1)}
    digests = digests_of(["E1", "E0"], ["concept"] * 2, ["e1. Of old.", "e0. Of old."]).tolist()
    assert [(item["id"], item["digest"]) for item in rows["c"]["inputs"]] == [("e1", digests[0]), ("e0", digests[1])]


def test_covers_follow_their_members_and_go_with_them() -> None:
    now = cluster_members({"x": ["e2"], "e": ["e5"], "d": ["e1", "e4", "e3"], "c": ["e2"]})
    found = {row["cluster_id"]: row for row in as_summaries(stored(), now, IDS).to_pylist()}
    was = {row["cluster_id"]: row for row in REPLIES}
    places = [(cover["member"], cover["entity"], cover["description"]) for cover in found["d"]["covers"]]
    assert places == [(1, 0, "is one"), (1, 1, "again")]  # e2 left; e4 has another place
    assert found["c"]["covers"] == []
    assert all(found[name]["entities"] == was[name]["entities"] for name in was)

    left = pa.chunked_array([pa.array(["e0", "e1", "e2", "e3", "e5"])])
    now = cluster_members({"c": ["e0", "e1"], "d": ["e2", "e3"], "e": ["e5"]})
    covers = {row["cluster_id"]: row["covers"] for row in as_summaries(stored(), now, left).to_pylist()}
    assert [[cover["member"] for cover in covers[name]] for name in "cd"] == [[0], [0]], "e4 is no entity any more"


def test_no_summaries_are_none() -> None:
    empty = summary_rows(0, MEMBERS, CLUSTER_SUMMARIES.empty_table(), SOURCES, IDS, MODEL, 0)
    assert empty.equals(SUMMARIES.empty_table())
    assert as_summaries(empty, MEMBERS, IDS).equals(CLUSTER_SUMMARIES.empty_table())


@pytest.mark.parametrize("block_rows", [2, 65_536])
def test_what_was_just_written_has_not_changed(monkeypatch: pytest.MonkeyPatch, block_rows: int) -> None:
    monkeypatch.setattr(written, "_BLOCK_ROWS", block_rows)
    ordered = MEMBERS.take([1, 2, 0])  # as the replies
    before = written_inputs(stored()["inputs"], IDS)
    assert changed_share(before, member_inputs(ordered, IDS)).tolist() == [0, 0, 0]
    other = cluster_members({"d": ["e2", "e3", "e4"], "e": ["e5"], "c": ["e0", "e1"]}, "Of now.")
    assert changed_share(before, member_inputs(other, IDS)).tolist() == [1, 1, 1]
    left = pa.chunked_array([pa.array(["e0", "e1", "e2", "e3"])])
    fewer = cluster_members({"d": ["e2", "e3"], "e": [], "c": ["e0"]})
    shares = changed_share(written_inputs(stored()["inputs"], left), member_inputs(fewer, left))
    assert shares.tolist() == [np.float32(1 / 3), 1, 0.5]
