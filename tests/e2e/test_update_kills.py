"""Updates under kill -9, on Ray, and two at once: the same snapshot, and no reply paid twice."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from hirag_dist.testing.simulator import SimulatorOptions
from hirag_dist.testing.simulator.run import SimulatorThread
from tests.e2e.test_kills import IN_FLIGHT, chat_calls

EDIT = "A further sentence about the Analytical Engine was added to this page by an editor of the encyclopedia."


def changed(folder: Path, corpus: Path, n_files: int) -> Path:
    """Return a folder with the first files of the corpus, the first of them edited if all are there."""
    folder.mkdir(exist_ok=True)
    files = sorted(corpus.iterdir())
    for file in files[:n_files]:
        shutil.copy(file, folder / file.name)
    if n_files == len(files):
        first = folder / files[0].name
        first.write_text(f"{first.read_text('utf-8')}\n\n{EDIT}\n", encoding="utf-8")
        (folder / files[1].name).unlink()
    return folder


@pytest.fixture(scope="module")
def base(forked: Any, corpus: Path, built: Any, paid: Any, tmp_path_factory: Any) -> Any:
    """An index of three of four files, built against an endpoint over HTTP, and the endpoint."""
    place = tmp_path_factory.mktemp("base")
    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0"))
    with thread as url:
        config = yaml.safe_load(built.config.read_text("utf-8")) | {"llm": paid(url)}
        forked.build(inputs=[str(changed(place / "before", corpus, 3))], config=config, index=place / "index")
        after = str(changed(place / "after", corpus, 4))
        yield {"index": place / "index", "inputs": [after], "config": config, "thread": thread}


def copied(base: dict[str, Any], folder: Path) -> Path:
    shutil.copytree(base["index"], folder)
    return folder


def test_an_update_that_is_killed_again_and_again_comes_out_the_same(forked: Any, base: Any, tmp_path: Path) -> None:
    """One document added, one edited, one removed; killed after every few durable writes."""
    thread, job = base["thread"], {"inputs": base["inputs"], "config": base["config"]}
    before = chat_calls(thread)
    whole = forked.build(**job, index=copied(base, tmp_path / "whole"))
    paid_once = chat_calls(thread) - before
    assert whole["changed"]
    assert paid_once > 2
    index, deaths = copied(base, tmp_path / "index"), 0
    for writes in cycle((17, 9, 109, 29)):
        said = forked.build(**job, index=index, at_write=writes)
        if "snapshot" in said:
            break
        assert said == {"signal": signal.SIGKILL}
        deaths += 1
        assert deaths < 80
    assert deaths > 5
    assert said["snapshot"] == whole["snapshot"]
    paid = chat_calls(thread) - before - paid_once
    assert paid_once <= paid <= paid_once + deaths * IN_FLIGHT
    again = forked.build(**job, index=index)
    assert (again["snapshot"], again["sent"], again["changed"]) == (whole["snapshot"], 0, False)


def test_an_update_on_ray_gives_the_snapshot_of_one_in_this_process(
    cli: Any, base: Any, make_config: Callable[..., Path], tmp_path: Path
) -> None:
    config = make_config(**base["config"])
    ids = {
        executor: cli.json(
            "index", *base["inputs"], "-i", copied(base, tmp_path / executor), "-c", config, "--executor", executor
        )["snapshot"]
        for executor in ("inline", "ray")
    }
    assert ids["inline"] == ids["ray"]


def test_of_two_updates_at_once_one_says_who_holds_the_index(
    cli: Any, base: Any, make_config: Callable[..., Path], until: Any, tmp_path: Path
) -> None:
    index, config = copied(base, tmp_path / "index"), make_config(**base["config"])
    command = ("index", *base["inputs"], "-i", index, "-c", config, "--executor", "inline")
    first = cli.start(*command)
    until(lambda: (index / "run.lock").exists(), "lock")
    second = cli(*command, code=5)
    assert "is being built by process" in second.stderr
    _, err = first.communicate(timeout=240)
    assert first.returncode == 0, err
