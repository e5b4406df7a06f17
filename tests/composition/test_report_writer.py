"""Missing reports: members in their place, written once for an answer, within budget and access, part of the next."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.composition.indexing import BuildOptions, run_build
from hirag_dist.composition.query import make_engine, report_budget
from hirag_dist.composition.refresh import refresh_within
from hirag_dist.composition.report_writer import REPLACED
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.errors import InvalidQuery
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.storage.layout import LATE_REPORTS
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.gc import RetentionPolicy, plan_gc, prune
from hirag_dist.storage.snapshot.late_reports import late_reports, late_reports_path
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query

QUESTION = "Who designed the Engineaaa in Townaaa, and the Engineccc?"
_TEXT = (
    "Ada Love{0} wrote notes on the Engine{0}. Charles Bab{0} designed the Engine{0} in Town{0}. Ada Love{0} and "
    "Charles Bab{0} met Mary Some{0}. The Royal Society of London met Mary Some{0} in Town{0}."
)


def config(policy: str = "on_demand", **on_demand: Any) -> Config:
    return Config.model_validate(
        {
            "execution": {"executor": "inline"},
            "kernels": "cpu",
            "vectors": {"backend": "memory"},
            "communities": {"report_min_entities": 2, "max_size": 6, "reports": {"policy": policy}},
            "retrieval": {"reports_on_demand": {"enabled": True} | on_demand},
        }
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an index without reports, and one with all."""
    folder = tmp_path_factory.mktemp("built")
    rows = [{"text": _TEXT.format(town * 3), "labels": ["secret"] if town == "b" else []} for town in "abc"]
    corpus = folder / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run_build([str(corpus)], str(folder / "index"), config())
    run_build([str(corpus)], str(folder / "whole"), config("all"))
    return folder


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built / "index", tmp_path / "index")


@pytest.fixture
def whole(built: Path) -> Snapshot:
    return open_snapshot(Store(str(built / "whole")))


def engine_of(index: Path, **on_demand: Any) -> QueryEngine:
    settings = config(**on_demand)
    return make_engine(settings, open_snapshot(Store(str(index))), Prompts())


async def test_members_stand_in_place_of_a_missing_report(index: Path) -> None:
    engine = engine_of(index)
    found = await engine.retrieve(Query(QUESTION))
    assert found.missing_reports
    item = next(each for each in found.communities if each.report_missing)
    assert item.title
    assert item.report
    assert "main members; its report is not written" in found.context
    assert engine.info.counts["missing_reports"] == open_snapshot(Store(str(index))).manifest.missing_reports
    details = await engine.get_community(item.community_id)
    assert details.community.report_missing
    assert not details.community.report
    await engine.close()


async def test_several_answers_have_a_report_written_once_as_a_build_would(index: Path, whole: Snapshot) -> None:
    engine, other = engine_of(index), engine_of(index)
    before = await engine.retrieve(Query(QUESTION))
    answers = await asyncio.gather(
        *(each.answer(Query(QUESTION, write_reports=True)) for each in (engine, engine, other))
    )
    written = answers[0].retrieval.written_reports
    assert written == before.missing_reports[:3]
    assert all(answer.retrieval.written_reports == written for answer in answers)
    late = late_reports(open_snapshot(Store(str(index))))
    assert sorted(each.community_id for each in late) == sorted(written)
    assert [row["calls"] for each in late for row in each.usage] == [1] * len(written)
    built = {row["community_id"]: row for row in whole.table("reports").to_pylist()}
    leaves = {row["community_id"] for row in whole.table("communities").to_pylist() if row["is_leaf"]}
    assert [built[each.community_id] for each in late if each.community_id in leaves] == [
        dict(each.report) for each in late if each.community_id in leaves
    ]
    after = await engine.retrieve(Query(QUESTION))
    assert not set(after.missing_reports) & set(written)
    shown = next(item for item in after.communities if item.community_id == written[0])
    assert shown.report in {item.report for item in answers[2].retrieval.communities}
    assert not (await engine.get_community(written[0])).community.report_missing
    await engine.close()
    await other.close()
    result = await asyncio.to_thread(refresh_within, str(index), config(), BuildOptions())
    n_before = open_snapshot(Store(str(index)), before.snapshot_id).manifest.missing_reports
    assert result.manifest.missing_reports == n_before - len(written)
    store = Store(str(index))
    with BuildLock(store) as lock:
        prune(store, lock, plan_gc(store, RetentionPolicy(0, 0.0), time.time()), [])
    assert store.names(LATE_REPORTS) == []
    assert sum(row["calls"] for row in result.usage) == len(written)


async def test_the_budget_of_the_caller_ends_the_writing_and_the_result_says_so(index: Path) -> None:
    engine = engine_of(index, caller_calls_per_minute=1)
    first = (await engine.answer(Query(QUESTION, write_reports=True, caller="a"))).retrieval
    assert len(first.written_reports) == 1
    assert "this caller has had 1 reports written within a minute" in first.note
    second = (await engine.answer(Query(QUESTION, write_reports=True, caller="a"))).retrieval
    assert second.written_reports == ()
    third = (await engine.answer(Query(QUESTION, write_reports=True, caller="b"))).retrieval
    assert len(third.written_reports) == 1
    await engine.close()


async def test_nothing_is_written_without_the_switch_the_setting_or_the_current_snapshot(index: Path) -> None:
    engine, refusing = engine_of(index), engine_of(index, enabled=False)
    assert (await engine.answer(Query(QUESTION))).retrieval.missing_reports
    with pytest.raises(InvalidQuery, match="calls no model"):
        await engine.retrieve(Query(QUESTION, write_reports=True))
    with pytest.raises(InvalidQuery, match=r"reports_on_demand\.enabled is false"):
        await refusing.answer(Query(QUESTION, write_reports=True))
    store = Store(str(index))
    store.write_bytes("current", b"0123456789abcdef\n")
    answer = await engine.answer(Query(QUESTION, write_reports=True))
    assert REPLACED in answer.retrieval.note
    assert store.names(late_reports_path(answer.retrieval.snapshot_id)) == []
    await engine.close()
    await refusing.close()


async def test_a_report_on_hidden_texts_is_neither_shown_nor_written(index: Path) -> None:
    engine = engine_of(index, max_reports=100)
    reach = frozenset[str]()
    seen = {item.community_id for item in (await engine.retrieve(Query(QUESTION, top_n=100))).communities}
    answer = await engine.answer(Query(QUESTION, top_n=100, reach=reach, write_reports=True))
    allowed = {item.community_id for item in answer.retrieval.communities}
    assert allowed < seen
    assert set(answer.retrieval.written_reports) <= allowed
    late = late_reports(open_snapshot(Store(str(index))))
    assert all("bbb" not in json.dumps(dict(each.report)).casefold() for each in late)
    await engine.close()


def test_dollars_are_limited_only_where_prices_are_known() -> None:
    assert report_budget(config(usd_per_day=1.0).retrieval.reports_on_demand).take("") == ""
