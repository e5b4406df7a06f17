"""Executors that a configuration asks for and an installation lacks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hirag_dist.composition.build import make_executor
from hirag_dist.config.model import Config, ExecutionConfig
from hirag_dist.errors import BackendUnavailable
from hirag_dist.storage.store import Store


def test_ray_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hirag_dist.execution.ray", raising=False)
    for name in [name for name in sys.modules if name.startswith("hirag_dist.execution.ray.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    executor = make_executor(Config(execution=ExecutionConfig(executor="ray")), Store(str(tmp_path)), None, None)
    said = r"needs the package ray, .* or use --executor inline$"
    with pytest.raises(BackendUnavailable, match=said), executor.hold(lambda services, shard: shard, [1]):
        pass
