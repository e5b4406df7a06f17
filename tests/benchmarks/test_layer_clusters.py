"""Clusters that the benchmark makes from the vectors of an index, against those of the build."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.layer_clusters import Layer, draw
from hirag_dist.composition.indexing import run_build
from hirag_dist.config.model import ClusteringConfig, Config
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store

SAMPLES = Path(__file__).parents[2] / "hirag_dist" / "samples" / "corpus"
FILES = ("melville-brit-and-squid.md", "monroe-1823-doctrine.md", "newton-whiteness-from-colours.md")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("built")
    (folder / "corpus").mkdir()
    for name in FILES:
        shutil.copy(SAMPLES / name, folder / "corpus" / name)
    config = Config.model_validate({"execution": {"executor": "inline"}, "kernels": "cpu"})
    run_build([str(folder / "corpus")], str(folder / "index"), config)
    return open_snapshot(Store(str(folder / "index")))


def test_default_settings_give_the_clusters_of_the_build(snapshot: Snapshot) -> None:
    usual = ClusteringConfig()
    found = Layer(snapshot).measured(usual.reduction, usual.reduce_dims, usual.covariance)
    (first, *_) = snapshot.table("layers").to_pylist()
    memberships = sum(row["layer"] == 0 for row in snapshot.table("clusters").to_pylist())
    assert first["n_clusters"] > 2
    assert (found["entities"], found["clusters"]) == (first["n_entities"], first["n_clusters"])
    assert found["memberships_an_entity"] == round(memberships / first["n_entities"], 3)
    assert 1 / len(FILES) < found["commonest_document"] <= 1
    assert found["related_lift"] > 1


def test_a_draw_names_the_indexes_in_its_last_line_only(snapshot: Snapshot, capsys: pytest.CaptureFixture[str]) -> None:
    draw({"INDEX-A": snapshot, "INDEX-B": snapshot}, 2, 0)
    *shown, last = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("## ") for line in shown) == 4
    assert not any("INDEX-" in line for line in shown)
    assert sorted(json.loads(last)["whose"]) == ["INDEX-A", "INDEX-A", "INDEX-B", "INDEX-B"]
