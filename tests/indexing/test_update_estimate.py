"""Estimates of updates against the updates themselves, with the built-in model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.application.build import run_add, run_build
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.indexing.changed_documents import DocumentCounts
from hirag_dist.indexing.update_estimate import UpdateEstimate, estimate_update
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

SAMPLES = Path(__file__).parents[2] / "hirag_dist" / "samples" / "corpus"
SETTINGS = {"execution": {"executor": "inline"}, "clustering": {"target_size": 4}}
FILES = ("melville-brit-and-squid.md", "monroe-1823-doctrine.md", "newton-whiteness-from-colours.md")
CHAT = {"base_url": "http://127.0.0.1:9", "model": "m", "price": {"input": 2.0, "output": 8.0}}
PRICED = {"llm": {"endpoints": {"paid": CHAT}, "roles": dict.fromkeys(("extract", "summarise", "report"), "paid")}}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    (folder / "corpus").mkdir()
    for name in FILES:
        shutil.copy(SAMPLES / name, folder / "corpus" / name)
    run_build([str(folder / "corpus")], str(folder / "index"), Config.model_validate(SETTINGS))
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def plan(folder: Path, **keys: Any) -> UpdateEstimate:
    config = Config.model_validate(SETTINGS | keys)
    return estimate_update([str(folder / "corpus")], open_snapshot(Store(str(folder / "index"))), config, Prompts())


def texts(folder: Path) -> set[str]:
    """Return the texts of all chunks of the index."""
    return set(open_snapshot(Store(str(folder / "index"))).table("chunks", ["text"])["text"].to_pylist())


def test_nothing_changed(folder: Path) -> None:
    made = plan(folder)
    assert not made.documents
    assert (made.calls, made.cost_usd, made.stages) == (0, 0, ())
    assert made.rebuild.calls > 0


def test_documents_and_chunks_are_those_of_the_update(folder: Path) -> None:
    corpus = folder / "corpus"
    (corpus / FILES[0]).unlink()
    edited = (corpus / FILES[1]).read_text("utf-8")
    (corpus / FILES[1]).write_text(f"{edited}\nOne more sentence about the Treasury of Lisbon.\n", "utf-8")
    shutil.copy(SAMPLES / "lincoln-1862-one-national-family.md", corpus)
    made = plan(folder)
    before = texts(folder)
    result = run_build([str(corpus)], str(folder / "index"), Config.model_validate(SETTINGS))
    assert result.update is not None
    assert made.base == result.update.base
    assert made.documents == result.update.documents
    assert made.chunks == len(texts(folder) - before)
    assert made.chunks < made.rebuild.chunks
    assert made.extraction_tokens == pytest.approx(result.update.extraction_tokens, rel=0.6)
    spent = sum(stage.input_tokens + stage.output_tokens for stage in made.stages if stage.stage != "embed")
    assert made.budget_tokens is None
    assert 0.4 < spent / result.update.spent_tokens < 2.5
    assert 0.3 < made.summaries.written / result.update.summaries.written < 3


def test_a_file_that_is_there_and_cannot_be_read_is_not_removed(folder: Path) -> None:
    corpus = folder / "corpus"
    (corpus / FILES[0]).unlink()
    (corpus / FILES[1]).write_bytes(bytes(range(256)) * 8)
    made = plan(folder)
    result = run_build([str(corpus)], str(folder / "index"), Config.model_validate(SETTINGS))
    assert result.update is not None
    assert made.documents == result.update.documents == DocumentCounts(removed=1)


def test_an_update_costs_less_than_a_build_and_keeps_its_bound(folder: Path) -> None:
    shutil.copy(SAMPLES / "lincoln-1862-one-national-family.md", folder / "corpus")
    made = plan(folder, **PRICED)
    assert 0 < made.cost_usd < made.rebuild.cost_usd
    assert made.budget_tokens == 3 * made.extraction_tokens
    chat = [stage for stage in made.stages if stage.stage != "embed"]
    assert sum(stage.input_tokens + stage.output_tokens for stage in chat) <= made.budget_tokens
    tight = plan(folder, **PRICED, update={"max_ratio": 1})
    assert tight.summaries.written == tight.reports.written == 0
    assert tight.summaries.due == made.summaries.due > 0


def test_an_addition_keeps_the_documents_of_the_index(folder: Path) -> None:
    more = folder / "more"
    more.mkdir()
    shutil.copy(SAMPLES / "lincoln-1862-one-national-family.md", more)
    text = (folder / "corpus" / FILES[1]).read_text("utf-8")
    (more / FILES[1]).write_text(f"{text}\nOne more sentence about the Treasury of Lisbon.\n", "utf-8")
    config, snapshot = Config.model_validate(SETTINGS), open_snapshot(Store(str(folder / "index")))
    made = estimate_update([str(more)], snapshot, config, Prompts(), add=True)
    before = texts(folder)
    result = run_add([str(more)], str(folder / "index"), config)
    assert result.update is not None
    assert made.documents == result.update.documents == DocumentCounts(added=1, changed=1)
    assert made.chunks == len(texts(folder) - before)
    assert made.rebuild.documents == 4
    after = open_snapshot(Store(str(folder / "index")))
    assert not estimate_update([str(more)], after, config, Prompts(), add=True).documents
