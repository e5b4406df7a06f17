"""An index from which a document was removed, built against a simulated endpoint, with everything it left behind."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hirag_dist.application.build import run_build
from hirag_dist.application.index_result import IndexResult
from hirag_dist.config.model import Config
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.testing.simulator import SimulatorOptions
from tests.simulator_thread import SimulatorThread

KEPT = {
    "engine.txt": "Charles Babbage designed the Analytical Engine in London. The Analytical Engine had a mill and a "
    "store, and Joseph Clement built parts of the Difference Engine for Charles Babbage.",
    "loom.txt": "Joseph Jacquard built a loom in Lyon that was driven by punched cards. Charles Babbage owned a woven "
    "portrait of Joseph Jacquard from Lyon.",
}
REMOVED = {
    "patient.txt": "Wilhelmina Throckmorton was treated in Saint Hedwig Hospital for a fever in the spring. Doctor "
    "Aloysius Pemberley gave Wilhelmina Throckmorton quinine and sent her to Lyon for the summer."
}


@dataclass
class RemovalBench:
    """Builds in a folder of its own."""

    folder: Path
    config: Config

    @property
    def store(self) -> Store:
        return Store(str(self.folder / "index"))

    def build(self, texts: dict[str, str], **options: Any) -> IndexResult:
        shutil.rmtree(self.folder / "corpus", ignore_errors=True)
        (self.folder / "corpus").mkdir(parents=True)
        for name, text in texts.items():
            (self.folder / "corpus" / name).write_text(text)
        return run_build([str(self.folder / "corpus")], self.store.uri, self.config, **options)

    def copied(self, folder: Path) -> RemovalBench:
        """Copy the index to another folder."""
        shutil.copytree(self.folder / "index", folder / "index")
        return RemovalBench(folder, self.config)

    def document_id(self, name: str, snapshot_id: str | None = None) -> str:
        """Return the id of a document by the end of its uri."""
        documents = self.snapshot(snapshot_id).table("documents", ["document_id", "uri"]).to_pylist()
        return next(str(row["document_id"]) for row in documents if row["uri"].endswith(name))

    def snapshot(self, snapshot_id: str | None = None) -> Snapshot:
        return open_snapshot(self.store, snapshot_id)


@contextmanager
def removal_bench(folder: Path) -> Iterator[RemovalBench]:
    """Lend a bench with a simulated endpoint for all roles, embeddings too."""
    with SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", dim=64)) as url:
        endpoints = {
            "chat": {"base_url": url, "model": "simulated", "api_key": "k", "max_concurrent": 8},
            "vectors": {"base_url": url, "model": "simulated-vectors", "api_key": "k", "dim": 64},
        }
        chat = dict.fromkeys(("extract", "summarise", "report"), "chat")
        config = Config.model_validate(
            {
                "execution": {"executor": "inline"},
                "clustering": {"target_size": 4},
                "llm": {"endpoints": endpoints, "roles": chat | {"embed": "vectors"}, "attempts": 2},
            }
        )
        yield RemovalBench(folder, config)
