"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hirag_dist.cli.main import exit_at_once
from hirag_dist.llm.endpoints import onnx_models
from hirag_dist.storage.store import Store
from tests import strata
from tests.milvus_server import NoServer, shared_server
from tests.storage.snapshots import keep_all_rows

settings.register_profile(
    "loaded machine", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("loaded machine")  # how long an example takes depends on what else runs


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files and folders without a test of the strata that are asked for."""
    return True if strata.left_out(collection_path, config.getoption("markexpr")) else None


@pytest.fixture(scope="session", autouse=True)
def no_weights_found() -> Iterator[None]:
    """A new index is built with `hashing`, in seconds, unless a test names another embedder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_models, "is_installed", lambda: False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_authority(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One authority, which signs nothing, is trusted: each client would read all that this machine trusts, in 20 ms.

    Not none, which the client of object stores takes for a fault. Tests of images and of real models fetch from
    registries, so these trust what the machine does.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("markexpr") not in ("image", "cluster", "slow"):
            patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
            patch.setenv("SSL_CERT_FILE", str(Path(__file__).parent / "authority.pem"))
        yield


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows stay in files of a former snapshot, however small the tables and however many rows changed."""
    keep_all_rows(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in a folder that is not there yet."""
    return Store(str(tmp_path / "index"))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Indexes that leak if they can (`leaky_builds.Indexes`), each built once."""
    from tests.leaky_builds import Indexes  # not imported by processes that build none

    return Indexes(tmp_path_factory)


@pytest.fixture(scope="session", autouse=True)
def _no_syncs() -> Iterator[None]:
    """No test loses power, so that nothing waits for a disk. Tests of durability watch the calls in their order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.hookimpl(tryfirst=True)  # before the markers of -m are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests, and put the files that take longest first: one process of xdist runs a file."""
    for item in items:
        strata.mark(item)
    items.sort(key=strata.place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Set a test up; a unit test starts no process for it."""
    with strata.guarded(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a test; a unit test starts no process."""
    with strata.guarded(item):
        return (yield)


def pytest_collection_finish() -> None:
    """Exclude imported and collected objects from further garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_works() -> Iterator[None]:
    """A shell that starts the tests in the background has SIGINT ignored, and every process they start with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _no_exit_at_ctrl_c() -> Iterator[None]:
    """A test that calls `main` leaves its handler, which ends the process: later tests that raise SIGINT would die."""
    yield
    if signal.getsignal(signal.SIGINT) is exit_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Run a test; after the last one on Ray, stop the cluster that they share."""
    outcome = yield
    leaves_file = nextitem is None or nextitem.path != item.path  # fixtures of the module use the cluster until then
    if leaves_file and (nextitem is None or strata.group(nextitem) != strata.RAY) and "tests.ray_nodes" in sys.modules:
        sys.modules["tests.ray_nodes"].shared.stop()
    return outcome


@pytest.fixture(scope="module")
def ray_cluster() -> Any:
    """The Ray cluster that all tests share (`ray_nodes.SharedCluster`), to which this process is connected."""
    from tests.ray_nodes import shared  # not imported by processes that run no test on Ray

    return shared.get()


@pytest.fixture(scope="session")
def milvus_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Milvus server: the one that MILVUS_URI names, else one that the wheel `milvus` starts."""
    if named := os.environ.get("MILVUS_URI"):
        yield named
        return
    own = tmp_path_factory.getbasetemp()
    with ExitStack() as stack:
        try:
            uri = stack.enter_context(shared_server(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own))
        except NoServer as error:
            pytest.skip(str(error))
        yield uri
