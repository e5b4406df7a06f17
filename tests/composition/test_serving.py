"""From configuration to a service that listens."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.composition import serving
from hirag_dist.composition.serving import (
    CatalogueListing,
    catalogue_config,
    has_catalogue,
    make_catalogue,
    multi_process_config,
    server_options,
)
from hirag_dist.config.model import Config
from hirag_dist.config.service import ServiceConfig
from hirag_dist.errors import ConfigError
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.service.callers import Caller
from hirag_dist.types import Answer, Query
from tests.built_in_builds import CONFIG, build


def config(**sections: Any) -> Config:
    return Config.model_validate(sections)


def test_vectors_of_several_processes() -> None:
    server = {"uri": "http://milvus:19530"}
    for vectors, backend in (({}, "memory"), (server, "milvus"), ({"backend": "memory"}, "memory")):
        assert multi_process_config(config(vectors=vectors)).vectors.backend == backend
    with pytest.raises(ConfigError, match=r"set service\.processes to 1, or vectors\.backend"):
        multi_process_config(config(vectors={"backend": "milvus-lite"}))


def test_how_many_retrievals_at_a_time_goes_by_what_they_wait_for() -> None:
    endpoint = {"kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m", "dim": 8}
    remote = {"endpoints": {"far": endpoint}, "roles": {"embed": "far"}}
    server = {"uri": "http://milvus:19530"}
    for vectors, n in (({"backend": "memory"}, 2), ({}, 2), (server, 8), (server | {"backend": "milvus"}, 8)):
        assert server_options(config(vectors=vectors)).max_concurrent_retrievals == n
    assert server_options(config(vectors={"backend": "memory"}, llm=remote)).max_concurrent_retrievals == 32


def test_every_key_of_the_service_is_an_option() -> None:
    given = {
        "listen": "127.0.0.1:1",
        "max_concurrent_requests": 7,
        "drain_s": 4.0,
        "callers_file": "callers.yaml",
        "access_log": False,
    }
    traces = "http://collector:4318/v1/traces"
    made = config(service=given | {"anonymous_labels": ["public"]}, traces_endpoint=traces)
    options = server_options(made)
    expected = given | {"anonymous_labels": frozenset(["public"]), "traces_endpoint": traces}
    assert {key: getattr(options, key) for key in expected} == expected
    shared = server_options(made, shared_listen="127.0.0.1:2")
    assert (shared.listen, shared.reuse_port) == ("127.0.0.1:2", True)
    assert server_options(config(service={"anonymous_labels": "all"})).anonymous_labels is None
    for wrong in ("some", [7]):
        with pytest.raises(ValueError, match="Expected a list of labels"):
            config(service={"anonymous_labels": wrong})


ALL = Caller(reach=None)


def configured(**service: Any) -> Config:
    """The configuration of the builds, with a service."""
    return CONFIG.model_copy(update={"service": ServiceConfig.model_validate(service)})


def publish(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "current").write_text("s1")


def test_sub_folders_that_hold_an_index_are_listed(tmp_path: Path) -> None:
    for name in ("acme", "beta-2", ".hidden", "with space"):
        publish(tmp_path / name)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "file").write_text("")
    publish(tmp_path.with_name("outside"))
    outside = {"uri": str(tmp_path.with_name("outside"))}
    indexes = {"acme": {"title": "Acme"}, "outside": outside, "unfinished": {"title": "later"}}
    listing = CatalogueListing(configured(catalogue=str(tmp_path), indexes=indexes).service)
    found = listing()
    assert sorted(found) == ["acme", "beta-2", "outside"]
    assert (found["acme"].title, found["beta-2"].uri) == ("Acme", f"{tmp_path}/beta-2")
    (tmp_path / "unfinished" / "current").write_text("s1")
    shutil.rmtree(tmp_path / "beta-2")
    assert sorted(listing()) == ["acme", "outside", "unfinished"]


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ({"indexes": {"../acme": {"uri": "/x"}}}, r"service\.indexes\.\.\./acme: a name has up to 63"),
        ({"indexes": {"acme": {"title": "Acme"}}}, r"indexes\.acme\.uri is missing"),
        ({"indexes": {"acme": {"uri": "/x", "retrieval": {"top_k": 1}}}}, r"indexes\.acme\.retrieval\.top_k"),
    ],
)
def test_wrong_settings(service: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        catalogue_config(configured(**service))


def test_settings_that_are_for_one_index() -> None:
    config = configured(catalogue="/x")
    assert has_catalogue(config.service)
    assert not has_catalogue(ServiceConfig.model_validate({}))
    with pytest.raises(ConfigError, match="either one index"):
        catalogue_config(config, "/y")
    lite = config.model_copy(update={"vectors": config.vectors.model_copy(update={"backend": "milvus-lite"})})
    with pytest.raises(ConfigError, match="milvus-lite is for one index"):
        catalogue_config(lite)
    assert catalogue_config(config).vectors.backend == "memory"


QUESTION = Query("Who keeps the Lighthouse?", reach=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two indexes of documents that differ in a name, and one of both names' document ids: acme and beta."""
    folder = tmp_path_factory.mktemp("catalogue")
    for name, keeper in (("acme", "Ada Acmeson"), ("beta", "Bertha Betason")):
        corpus = folder.with_name(f"{folder.name}-{name}")
        corpus.mkdir()
        (corpus / "same.txt").write_text(f"{keeper} keeps the Lighthouse. {keeper} wrote the Log of the Lighthouse.")
        build(corpus, folder / name)
    return folder


async def test_an_index_that_vanishes_while_it_is_served_is_a_failed_swap(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    index = shutil.copytree(folder / "acme", tmp_path / "acme")
    told: list[bool] = []

    async def serve_until_gone(indexes: Any, *_: object) -> None:
        indexes.on_swap(told.append)
        await indexes.start()
        (index / "current").unlink()
        for _ in range(3):
            assert not await indexes._swapper.refresh()
        assert indexes.engine is not None
        await indexes.close()

    monkeypatch.setattr(serving, "serve_grpc", serve_until_gone)
    await serving.serve_index(configured(), str(index), server_options(configured()), told.append)
    assert told == [False, False]
    assert caplog.text.count(f"{index}/current is gone; put it back, or write the id of a snapshot into it") == 1


@pytest.mark.parametrize("is_listed", [True, False])
async def test_an_index_that_vanishes_from_a_catalogue_is_a_failed_swap_unless_the_listing_notices(
    folder: Path, tmp_path: Path, is_listed: bool
) -> None:
    index = shutil.copytree(folder / "acme", tmp_path / "acme")
    named = {"catalogue": str(tmp_path)} if is_listed else {"indexes": {"acme": {"uri": str(index)}}}
    catalogue, told = make_catalogue(catalogue_config(configured(**named))), list[bool]()
    catalogue.on_swap(told.append)
    await catalogue.refresh_listing()
    async with catalogue.find("acme", ALL).lease(lambda: None):
        (index / "current").unlink()
        for _ in range(3):
            await catalogue.refresh_snapshots()
    assert told == ([] if is_listed else [False, False])
    await catalogue.close()


async def test_indexes_share_models_and_nothing_of_their_callers(folder: Path) -> None:
    config = configured(catalogue=str(folder), indexes={"beta": {"retrieval": {"top_n": 1}}})
    catalogue = make_catalogue(catalogue_config(config))
    await catalogue.start()
    found: dict[str, str] = {}
    for name in ("acme", "beta"):
        async with catalogue.find(name, ALL).lease(lambda: None) as engine:
            assert isinstance(engine, QueryEngine)
            assert engine.question_cache == (0, 0)  # the same question of the other index was not cached here
            for _ in range(2):
                retrieval = await catalogue.runner.run(engine.retrieve(QUESTION))
            assert engine.question_cache == (1, 1)
            answer = await catalogue.runner.run(engine.answer(QUESTION))
            assert isinstance(answer, Answer)
            found[name] = f"{retrieval!r} {answer!r} {answer.retrieval.context} {engine.describe(None)!r}"
            if name == "beta":
                assert len(retrieval.local) == 1  # as this index is configured
    assert "Acmeson" in found["acme"]
    assert "Bertha" not in found["acme"]
    assert "Betason" in found["beta"]
    assert "Ada" not in found["beta"]
    shutil.move(folder / "acme", folder / ".acme")
    try:
        await catalogue.refresh_listing()
        assert [entry.name for entry in catalogue.entries(ALL)] == ["beta"]
        async with catalogue.find("beta", ALL).lease(lambda: None) as engine:  # its models were not closed
            assert (await catalogue.runner.run(engine.answer(QUESTION))).text
    finally:
        shutil.move(folder / ".acme", folder / "acme")
    await catalogue.close()
