"""An index in a folder of its own, and the commands that change it, run in this process."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hirag_dist.cli import _output
from hirag_dist.cli._command_line import run
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from tests.removal_builds import KEPT

SETTINGS = {"execution": {"executor": "inline"}, "clustering": {"target_size": 4}}


@dataclass
class CommandBench:
    """Commands on one index of a corpus, with the built-in model."""

    folder: Path
    capfd: pytest.CaptureFixture[str]

    @property
    def index(self) -> str:
        return str(self.folder / "index")

    @property
    def corpus(self) -> str:
        return str(self.folder / "corpus")

    def write(self, name: str, text: str, folder: str = "corpus") -> str:
        """Write a text and return its folder."""
        (self.folder / folder).mkdir(exist_ok=True)
        (self.folder / folder / name).write_text(text, encoding="utf-8")
        return str(self.folder / folder)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command on the index; return its exit code and all that it printed, with spaces for line ends."""
        code = run(self._whole(arguments))
        said = self.capfd.readouterr()
        return code, " ".join((said.out + said.err).split())

    def json(self, *arguments: str) -> dict[str, Any]:
        """Run a command that succeeds with --json and return its object."""
        code = run(self._whole((*arguments, "--json")))
        claimed = _output._state["stdout"]
        assert claimed is not None
        os.dup2(claimed, 1)
        os.close(claimed)
        _output._state.update(stdout=None, json=False)
        report: dict[str, Any] = json.loads(self.capfd.readouterr().out)
        assert code == 0, report
        return report

    def _whole(self, arguments: tuple[str, ...]) -> list[str]:
        takes_config = arguments[0] not in ("status", "inspect")
        config = ["--config", str(self.folder / "hirag.yaml")] if takes_config else []
        return [*arguments, "--index", self.index, *config]

    def snapshot(self) -> Snapshot:
        return open_snapshot(Store(self.index))

    def uris(self) -> list[str]:
        return sorted(self.snapshot().table("documents", ["uri"])["uri"].to_pylist())

    def ids(self) -> dict[str, str]:
        """Return the id of each document by its path."""
        rows = self.snapshot().table("documents", ["uri", "document_id"]).to_pylist()
        return {row["uri"]: row["document_id"] for row in rows}


_INDEXED: dict[frozenset[str], Path] = {}  # texts → an index of them, to copy


def indexed_bench(folder: Path, capfd: pytest.CaptureFixture[str], texts: Mapping[str, str] = KEPT) -> CommandBench:
    """Return a bench whose corpus is indexed."""
    bench = command_bench(folder, capfd, texts)
    key = frozenset(texts)
    if key in _INDEXED:
        shutil.copytree(_INDEXED[key], bench.index)
        return bench
    bench.json("index", bench.corpus)
    if not _INDEXED:
        atexit.register(lambda: [shutil.rmtree(path, ignore_errors=True) for path in _INDEXED.values()])
    _INDEXED[key] = Path(shutil.copytree(bench.index, tempfile.mkdtemp(prefix="hirag-indexed-"), dirs_exist_ok=True))
    return bench


def command_bench(folder: Path, capfd: pytest.CaptureFixture[str], texts: Mapping[str, str] = KEPT) -> CommandBench:
    """Return a bench with a corpus that is not indexed yet."""
    (folder / "hirag.yaml").write_text(yaml.safe_dump(SETTINGS))
    bench = CommandBench(folder, capfd)
    for name, text in texts.items():
        bench.write(name, text)
    return bench
