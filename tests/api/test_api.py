"""Build, open and question an index from Python, with the built-in model."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hirag_dist as hd
from tests.removal_builds import REMOVED

CONFIG: dict[str, Any] = {"execution": {"executor": "inline"}}
TEXTS = {
    "harbour.md": "Ada Byron founded the Harbour Company in Bristol. The Harbour Company bought the ship Meridian. "
    "The Meridian sailed from Bristol to Lisbon under Captain Reyes.",
    "letters.md": "Captain Reyes wrote letters to Ada Byron and George Byron from Lisbon. The letters describe the "
    "storm that damaged the Meridian. Bristol newspapers printed the letters.",
}


def write(folder: Path, texts: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("corpus"), TEXTS)


@pytest.fixture(scope="module")
def built(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[hd.IndexResult, list[object]]:
    events: list[object] = []
    folder = tmp_path_factory.mktemp("index")
    return hd.build_index(corpus, folder, config=CONFIG, progress=events.append), events


@pytest.fixture(scope="module")
def index(built: tuple[hd.IndexResult, list[object]]) -> Iterator[hd.Index]:
    with hd.open_index(built[0].index_uri) as opened:
        yield opened


def test_a_build_reports_its_snapshot_and_its_progress(built: tuple[hd.IndexResult, list[object]]) -> None:
    result, events = built
    assert result.complete
    assert result.manifest.counts["documents"] == 2
    assert {type(event).__name__ for event in events} >= {"StageStarted", "TaskFinished", "StageFinished"}


def test_a_part_of_several_names(index: hd.Index) -> None:
    with pytest.raises(hd.NotFound, match="the closest names: 'Ada Byron', 'George Byron'"):
        index.get_entity("Byron")
    with pytest.raises(hd.NotFound, match="a search for it shows"):
        index.get_entity("yron")


def test_a_second_build_runs_no_stage(built: tuple[hd.IndexResult, list[object]], corpus: Path) -> None:
    """Inside a running event loop too, as a notebook cell calls it."""
    result = built[0]

    async def both() -> list[hd.IndexResult]:
        blocking = hd.build_index([corpus], result.index_uri, config=CONFIG)
        return [blocking, await asyncio.to_thread(hd.build_index, corpus, result.index_uri, config=CONFIG)]

    for again in asyncio.run(both()):
        assert (again.snapshot_id, again.stages_run, again.changed) == (result.snapshot_id, 0, False)


def test_a_plan_makes_no_index(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    estimate = hd.plan_build(corpus, config=CONFIG)
    assert (estimate.documents, estimate.chunks) == (2, 2)
    assert estimate.calls > 2
    assert not list(tmp_path.iterdir())


def test_retrieval_and_answer(index: hd.Index) -> None:
    assert index.info.counts["documents"] == 2
    found = index.retrieve("Who founded the Harbour Company?", top_n=3)
    assert len(found.local) == 3
    assert found.sources
    answer = index.answer(hd.Query("Who founded the Harbour Company?"), mode="naive")
    assert "Ada Byron" in str(answer)
    assert answer.citations
    assert answer.retrieval.mode == "naive"


def test_streams_end_with_everything(index: hd.Index) -> None:
    levels = [level for level, _ in index.retrieve_stream("Where did the Meridian sail?")]
    assert levels[-1] == "done"
    assert "local" in levels
    *parts, last = index.answer_stream("Where did the Meridian sail?")
    assert isinstance(parts[0], hd.Retrieval)
    assert isinstance(last, hd.Answer)
    assert "".join(part for part in parts if isinstance(part, str)).strip() == last.text.strip()


def test_wrong_options_and_questions_are_refused(index: hd.Index, tmp_path: Path) -> None:
    with pytest.raises(hd.SnapshotNotFound):
        hd.open_index(tmp_path)
    with pytest.raises(TypeError, match="no option 'top_k'; did you mean top_n"):
        index.retrieve("Who?", top_k=3)  # type: ignore[call-arg]
    with pytest.raises(hd.InvalidQuery, match="empty"):
        index.retrieve(" ")
    with pytest.raises(hd.InvalidQuery, match="no 'fast'"):
        index.retrieve("Who?", mode="fast")


def test_a_closed_index_says_so(built: tuple[hd.IndexResult, list[object]]) -> None:
    opened = hd.open_index(built[0].index_uri)
    opened.close()
    opened.close()
    with pytest.raises(hd.HiragError, match="closed"):
        opened.retrieve("Who?")


async def test_the_asynchronous_index(built: tuple[hd.IndexResult, list[object]]) -> None:
    async with await hd.open_index_async(built[0].index_uri) as index:
        found = await asyncio.gather(*(index.retrieve("Who is Captain Reyes?") for _ in range(3)))
        assert len({item.local[0].entity_id for item in found}) == 1
        assert [level async for level, _ in index.retrieve_stream("Who is Captain Reyes?")][-1] == "done"
        assert isinstance([part async for part in index.answer_stream("Who is Captain Reyes?")][-1], hd.Answer)


def test_configurations_are_files_mappings_or_models(tmp_path: Path) -> None:
    file = tmp_path / "hirag.yaml"
    file.write_text("retrieval: {top_n: 7}\n", encoding="utf-8")
    assert hd.load_config(file).retrieval.top_n == 7
    assert hd.load_config(file, retrieval={"top_n": 9}).retrieval.top_n == 9
    with pytest.raises(hd.ConfigError, match="did you mean top_n"):
        hd.load_config(retrieval={"top_nn": 9})


def test_documents_are_added_and_removed(
    built: tuple[hd.IndexResult, list[object]], corpus: Path, tmp_path: Path
) -> None:
    index = str(shutil.copytree(built[0].index_uri, tmp_path / "index"))
    added = hd.add_documents(write(tmp_path / "more", REMOVED), index, config=CONFIG)
    assert isinstance(added.update, hd.UpdateSummary)
    assert added.update.documents.added == 1
    assert added.manifest.counts["documents"] == 3
    removed = hd.remove_documents([], index, sources=["patient*"], config=CONFIG)
    assert removed.update.documents.removed == 1
    assert removed.manifest.counts["documents"] == 2
    rebuilt = hd.build_index(corpus, index, config=CONFIG, rebuild=True)
    assert (rebuilt.update, rebuilt.up_to_date) == (None, False)


def test_wrong_arguments_of_updates(built: tuple[hd.IndexResult, list[object]], tmp_path: Path) -> None:
    index = built[0].index_uri
    with pytest.raises(TypeError, match="no option 'max_dollars'; did you mean max_"):
        hd.add_documents(tmp_path, index, max_dollars=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="list of ids"):
        hd.remove_documents("x", index)
    with pytest.raises(hd.InputError, match="no document of the index is named x"):
        hd.remove_documents(["x"], index, config=CONFIG)
    with pytest.raises(hd.ConfigError, match="cannot be turned into tokens"):
        hd.refresh_index(index, config=CONFIG, max_usd=1)
    with pytest.raises(hd.SnapshotNotFound, match="holds no index; build one with"):
        hd.refresh_index(tmp_path / "none", config=CONFIG)
