"""`export` where it cannot be finished."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hirag_dist.cli.export import export
from hirag_dist.errors import StoreError
from tests.built_in_builds import build, write_corpus


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    build(write_corpus(folder / "corpus", 3), folder / "index")
    return folder / "index"


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """Let writes fail as on a full disk, beyond some bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("name", "n_bytes"), [("graph.graphml", 1000), ("tables", 6000)])
def test_an_export_that_fails_leaves_nothing_of_itself(index: Path, tmp_path: Path, name: str, n_bytes: int) -> None:
    with pytest.raises(StoreError, match="cannot write"), files_of_at_most(n_bytes):
        export(str(index), str(tmp_path / name))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_export_that_fails_leaves_the_former_one(index: Path, tmp_path: Path) -> None:
    file = tmp_path / "graph.graphml"
    export(str(index), str(file))
    before = file.read_bytes()
    with pytest.raises(StoreError, match="cannot write"), files_of_at_most(1000):
        export(str(index), str(file))
    assert file.read_bytes() == before
