"""A small index of four documents, open in this process, and a scripted service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import hirag_dist as hd
from hirag_dist._loop_thread import LoopThread
from hirag_dist.types import Place, SourceItem
from tests.service import fakes
from tests.service.fixtures import start

__all__ = ["start"]

TEXTS = {
    "harbour.md": "Ada Byron founded the Harbour Company in Bristol. The Harbour Company bought the ship Meridian.",
    "voyage.md": "The Meridian sailed from Bristol to Lisbon under Captain Reyes. A storm damaged the Meridian.",
    "letters.md": "Captain Reyes wrote letters to Ada Byron from Lisbon. Bristol newspapers printed the letters.",
    "sale.md": "Ada Byron sold the Harbour Company to Captain Reyes in Lisbon. The Meridian stayed in Bristol.",
}
SOURCES = tuple(
    SourceItem(
        f"k{number}",
        f"d{number}",
        f"Log {number}",
        f"file:///log{number}.txt",
        0,
        30 + number,
        f"Text {number}.",
        1 / number,
        metadata={"year": 1851 + number, "tags": ("sea", "rock"), "title": "not this one"},
        places=(Place(0, 30, "page", "p. 7", 7, "vii"),),
    )
    for number in range(1, 5)
)


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hd.Index]:
    """A real index, open in this process."""
    corpus = tmp_path_factory.mktemp("corpus")
    for name, text in TEXTS.items():
        (corpus / name).write_text(text, encoding="utf-8")
    built = hd.build_index(corpus, tmp_path_factory.mktemp("index"), config={"execution": {"executor": "inline"}})
    with hd.open_index(built.index_uri) as opened:
        yield opened


@pytest.fixture
def engine() -> fakes.FakeEngine:
    """An engine that finds four chunks."""
    return fakes.FakeEngine(whole=replace(fakes.WHOLE, sources=SOURCES))


@pytest.fixture
def address(engine: fakes.FakeEngine) -> Iterator[str]:
    """Address of a service in a thread of its own, for calls that block this one."""
    loop, services = LoopThread("service", lambda: RuntimeError("closed")), fakes.Services()
    try:
        yield loop.run(services.start(engine)).address
    finally:
        loop.run(services.stop())
        loop.close()
