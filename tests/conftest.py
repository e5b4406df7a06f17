"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.milvus_server import NoServer, shared_server

LONG = ("deploy", "e2e", "execution", "contracts", "test_leaks.py", "test_layering.py", "cli", "service")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first: a process that begins one when the others have finished keeps everybody waiting."""
    place = {name: number for number, name in enumerate(LONG)}
    files = {item: item.nodeid.partition("::")[0].removeprefix("tests/") for item in items}
    items.sort(key=lambda item: place.get(files[item].partition("/")[0], len(LONG)))


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
