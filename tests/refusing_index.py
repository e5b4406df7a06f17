"""An index whose model, behind an endpoint on loopback, refuses texts that hold a word."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hirag_dist.application.build import BuildOptions, run_add, run_build
from hirag_dist.application.index_result import IndexResult
from hirag_dist.application.retry import run_retry
from hirag_dist.composition.build_records import dead_letters, last_build
from hirag_dist.config.model import Config
from hirag_dist.execution.stage_results import load_drops
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Message
from tests.scripted_endpoint import Asked, Endpoint

TEXTS = {
    "engine.txt": "Charles Babbage designed the Analytical Engine in London. Ada Lovelace wrote notes on it.",
    "loom.txt": "Joseph Jacquard built a loom in Lyon. Charles Babbage owned a portrait of Joseph Jacquard.",
    "bridge.txt": "Isambard Brunel built the Clifton Bridge. Sarah Guppy drew the piles of the Clifton Bridge.",
    "train.txt": "George Stephenson built the Rocket in Newcastle. Robert Stephenson drove the Rocket to Rainhill.",
}


_BEGUN: dict[str, tuple[Path, IndexResult]] = {}  # what decides a build from nothing → an index to copy


@dataclass
class RefusingIndex:
    """An index whose model refuses texts that hold a word."""

    folder: Path
    keys: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.endpoint = Endpoint(self._reply)
        self.uri = str(self.folder / "index")
        self.store = Store(self.uri)
        roles = dict.fromkeys(("extract", "summarise", "report"), "chat")
        self.config = Config.model_validate(
            {
                "execution": {"executor": "inline"},
                "max_reject_ratio": 1,
                "pack_tokens": 0,
                "update": {"max_ratio": 1000},
                **self.keys,
                "llm": {
                    "attempts": 1,
                    "endpoints": {"chat": {"base_url": self.endpoint.url, "model": "m", "output": "delimited"}},
                    "roles": roles,
                },
            }
        )

    def _reply(self, asked: Asked) -> str:
        self.asked.append(asked.user)
        if self.refused and self.refused in asked.user:
            return "I cannot help with that."
        return reply_to([Message("system", asked.system), Message("user", asked.user)], None)

    def files(self, *names: str) -> list[str]:
        folder = self.folder / "corpus"
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).write_text(TEXTS[name])
        return [str(folder / name) for name in names]

    def begin(self, *names: str) -> IndexResult:
        """Build an index from nothing; where another test has built it too, take a copy."""
        key = repr((names, self.keys, self.refused))
        if key in _BEGUN:
            self.files(*names)
            shutil.copytree(_BEGUN[key][0], self.uri)
            return _BEGUN[key][1]
        result = self.build(*names)
        kept = Path(tempfile.mkdtemp(prefix="hirag-begun-"))
        atexit.register(shutil.rmtree, kept, ignore_errors=True)
        _BEGUN[key] = (Path(shutil.copytree(self.uri, kept, dirs_exist_ok=True)), result)
        return result

    def build(self, *names: str, **options: Any) -> IndexResult:
        return run_build(self.files(*names), self.uri, self.config, BuildOptions(**options))

    def build_folder(self) -> IndexResult:
        """Build an index of the folder, whatever it holds."""
        return run_build([str(self.folder / "corpus")], self.uri, self.config)

    def add(self, *names: str) -> IndexResult:
        return run_add(self.files(*names), self.uri, self.config)

    def retry(self) -> IndexResult:
        self.asked.clear()
        return run_retry(self.uri, self.config)

    def letters(self) -> list[dict[str, Any]]:
        return dead_letters(self.store, last_build(self.store), load_drops(self.store))

    def names(self) -> set[str]:
        return {Path(uri).name for uri in open_snapshot(self.store).table("documents", ["uri"])["uri"].to_pylist()}
