"""The process behind uploads, without a process: its plan, its update, and the lock of another build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hirag_dist.application.build import run_build
from hirag_dist.application.upload_process import run_task
from hirag_dist.config.model import Config
from hirag_dist.errors import IndexBusy
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store

CONFIG = Config.model_validate({"execution": {"executor": "inline"}})
TEXT = "The keeper Anna Berg lit the lamp of Cape Stone. Anna Berg wrote to the Harbour Office about the lamp.\n"


def test_a_plan_then_an_update_then_a_lock(tmp_path: Path) -> None:
    index, corpus, new = str(tmp_path / "index"), tmp_path / "corpus", tmp_path / "new"
    for folder, name in ((corpus, "a.md"), (new, "b.md")):
        folder.mkdir()
        (folder / name).write_text(TEXT.replace("Cape Stone", f"Cape {name[0].upper()}"), "utf-8")
    (new / "broken.json").write_bytes(b"{")
    run_build([str(corpus)], index, CONFIG)
    said: list[dict[str, Any]] = []
    task = {"action": "plan", "index": index, "folder": str(new), "max_usd": None}
    run_task(task, CONFIG, said.append)
    plan = said.pop()["plan"]
    assert plan["documents"] == {"added": 1, "changed": 0, "removed": 0}
    assert (plan["documents_after"], plan["unreadable_count"]) == (2, 1)
    assert "broken.json" in plan["unreadable"][0][0]
    assert plan["cost_usd"] == 0
    before = current_id(Store(index))
    with BuildLock(Store(index)), pytest.raises(IndexBusy, match="is being built by process"):
        run_task(task | {"action": "add"}, CONFIG, said.append)
    assert not said
    run_task(task | {"action": "add"}, CONFIG, said.append)
    result = said.pop()["result"]
    assert result["update"]["documents"] == plan["documents"]
    assert result["dead_letters"] == 1  # of the broken file
    assert not result["complete"]
    assert result["snapshot"] == current_id(Store(index)) != before
    assert said[-1]["progress"]["calls"] == result["this_run"]["calls"] > 0
