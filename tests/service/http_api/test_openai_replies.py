"""Models of a service with several indexes, and the addresses of citations."""

from __future__ import annotations

from hirag_dist.service.http_api.openai_replies import citation_marks, model_list, source_list
from hirag_dist.wire._pb import query_pb2 as pb


def ids(*entries: pb.IndexEntry) -> list[str]:
    return [model["id"] for model in model_list(entries, 0)["data"]]


def test_each_index_is_a_model_with_each_mode() -> None:
    found = ids(pb.IndexEntry(name="cases"), pb.IndexEntry(name="law/de", title="Laws", default=True))
    assert found[:2] == ["hirag", "hirag/hirag"], "the default index"
    assert {"cases", "cases/naive", "law/de", "law/de/graphrag-local"} <= set(found)
    assert len(found) == len(set(found))
    assert ids(pb.IndexEntry(name="cases"))[0] == "cases", "there is no default index"
    (laws, *_) = model_list([pb.IndexEntry(name="laws", title="Laws of the land")], 0)["data"]
    assert laws["name"] == "Laws of the land"


def test_the_list_of_sources() -> None:
    page = pb.Place(link="a.pdf#page=7")
    marked = pb.Place(link="b.html#:~:text=The%20lamp")
    cited = [
        pb.Citation(ref="S1", kind="chunk", title="A", places=[page]),
        pb.Citation(ref="S2", kind="chunk", title="B", places=[marked]),
        pb.Citation(ref="E1", kind="entity", id="e1", title="Ada"),
    ]
    assert source_list(cited) == "\n\nSources:\n[S1] A (a.pdf#page=7)\n[S2] B (b.html)\n[E1] Ada"
    assert source_list([]) == ""


def test_places_count_characters() -> None:
    (mark,) = citation_marks("灯台守 𝔘 [S1] [S9]", [pb.Citation(ref="S1", kind="chunk", id="k", title="Log")])
    assert (mark["start_index"], mark["end_index"], mark["title"]) == (6, 10, "Log")
