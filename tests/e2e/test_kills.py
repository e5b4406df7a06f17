"""kill -9 at any moment, run the same command again: the same snapshot, and no reply paid twice."""

from __future__ import annotations

import platform
import re
import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from hirag_dist.storage.store import Store
from hirag_dist.testing.simulator import SimulatorOptions
from tests.e2e.conftest import IN_FLIGHT, ForkedBuilds, chat_calls, paid_endpoint, until
from tests.ledger_sizes import ledger_size
from tests.simulator_thread import SimulatorThread

STAGES = ("read", "chunk", "extract", "merge_entities", "describe", "embed_entities", "cluster", "summarise", "reports")


def job_of(corpus: Path, built: Any, **keys: Any) -> dict[str, Any]:
    return {"inputs": [str(corpus)], "config": yaml.safe_load(built.config.read_text("utf-8")) | keys}


@pytest.fixture(scope="module")
def job(corpus: Path, built: Any) -> dict[str, Any]:
    return job_of(corpus, built)


def test_the_second_run_does_nothing_and_a_fresh_one_comes_out_the_same(
    forked: Any, job: dict[str, Any], built: Any, tmp_path: Path
) -> None:
    first = forked.run(**job, index=tmp_path / "index")
    again = forked.run(**job, index=tmp_path / "index")
    assert first["snapshot"] == again["snapshot"] == built.snapshot
    assert (first["changed"], again["changed"]) == (True, False)
    assert first["stages_run"] > len(STAGES)
    assert (again["stages_run"], again["writes"]) == (0, 0)
    fresh = forked.run(**job, index=tmp_path / "index", fresh=True)
    assert (fresh["snapshot"], fresh["stages_run"], fresh["changed"]) == (built.snapshot, first["stages_run"], False)


def test_killed_after_the_first_task_of_every_stage(
    forked: Any, job: dict[str, Any], built: Any, tmp_path: Path
) -> None:
    told = forked.run(**job, index=tmp_path / "whole")["told"]
    labels = [label for kind, label, _ in told if kind == "started"]
    firsts = {re.sub(r"\d+", "", label): label for label in reversed(labels)}  # of each kind of stage, any layer's
    assert len(firsts) > 12
    for label in sorted(firsts.values(), key=labels.index):
        died = forked.run(**job, index=tmp_path / "index", at_event=("task", label))
        assert died == {"signal": signal.SIGKILL}, label
    last = forked.run(**job, index=tmp_path / "index")
    assert last["snapshot"] == built.snapshot
    assert last["stages_run"] == 1  # all but the stage of the last kill were kept


def test_killed_while_publishing(forked: Any, job: dict[str, Any], built: Any, tmp_path: Path) -> None:
    index = tmp_path / "index"
    total = forked.run(**job, index=tmp_path / "whole")["writes"]
    files = sum(file.is_file() for file in (tmp_path / "whole" / "snapshots" / built.snapshot).rglob("*")) - 1
    published = files + 1 + 1 + 1  # the manifest among them, current, lives, and read_files.parquet after all others
    assert forked.run(**job, index=index, at_write=total - published + 1) == {"signal": signal.SIGKILL}
    states = []
    for write in (1, 9, files, 1):
        said = forked.run(**job, index=index, at_write=write)
        here = index / "snapshots" / built.snapshot
        states.append(((here / "manifest.json").exists(), (index / "current").exists()))
        assert said == {"signal": signal.SIGKILL}
    assert states[0] == states[1] == (False, False)
    assert states[2] == (True, False)  # the manifest is last, and going live comes after it
    assert states[3] == (True, True)
    assert forked.run(**job, index=index)["snapshot"] == built.snapshot


def embedding_calls(thread: SimulatorThread) -> int:
    return int(thread.stats()["endpoints"]["/v1/embeddings"]["calls"])


def test_paid_replies_survive_every_kill(forked: Any, corpus: Path, built: Any, tmp_path: Path) -> None:
    """Killed once in every stage and at many writes (the ledger's among them), against an endpoint over HTTP."""
    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0"))
    with thread as url:
        job = job_of(corpus, built, llm=paid_endpoint(url))
        whole = forked.run(**job, index=tmp_path / "whole")
        chat, embeddings = chat_calls(thread), embedding_calls(thread)
        deaths = 0
        for writes in cycle((24, 50, 31, 105)):
            said = forked.run(**job, index=tmp_path / "index", at_write=writes)
            if "snapshot" in said:
                break
            deaths += 1
            assert deaths < 60
        paid_chat = chat_calls(thread) - chat
        paid_embeddings = embedding_calls(thread) - embeddings
        assert said["snapshot"] == whole["snapshot"]
        assert deaths > 3
        assert chat <= paid_chat <= chat + deaths * IN_FLIGHT
        assert embeddings <= paid_embeddings <= embeddings + deaths * IN_FLIGHT
        assert forked.run(**job, index=tmp_path / "index")["sent"] == 0
        fresh = forked.run(**job, index=tmp_path / "index", fresh=True)
        assert fresh["sent"] == 0  # --fresh ignores finished stages, never the paid replies
        assert chat_calls(thread) - chat == paid_chat


@pytest.mark.parametrize(("executor", "number", "code"), [("inline", signal.SIGINT, 130), ("ray", signal.SIGTERM, 143)])
def test_interrupted_by_ctrl_c_or_sigterm(
    cli: Any,
    corpus: Path,
    make_config: Callable[..., Path],
    tmp_path: Path,
    executor: str,
    number: int,
    code: int,
) -> None:
    """Exit 130 or 143; every reply that was sent for is stored; the next run goes on."""
    index = tmp_path / "index"
    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", latency_ms=25))
    with thread as url:
        config = make_config(llm=paid_endpoint(url))
        command = ("index", corpus, "-i", index, "-c", config, "--executor", executor)
        process = cli.start(*command)
        until(lambda: chat_calls(thread) > 6, process)
        process.send_signal(number)
        _, err = process.communicate(timeout=240)
        assert process.returncode == code, err
        assert "Traceback" not in err
        assert "destroyed" not in err
        assert "run the same command again" in err
        sent = chat_calls(thread)
        stored = ledger_size(Store(str(index))).records
        assert stored == sent
        assert cli.json("status", "-i", index)["build"]["state"] == "interrupted"
        assert not (index / "run.lock").exists()
        report = cli.json(*command[:-1], "inline")
        assert report["this_run"]["calls"] == chat_calls(thread) + embedding_calls(thread) - sent


EDIT = "A further sentence about the Analytical Engine was added to this page by an editor of the encyclopedia."


def test_an_update_that_is_killed_again_and_again_comes_out_the_same(
    forked: Any, corpus: Path, built: Any, tmp_path: Path
) -> None:
    """One document added, one edited, one removed; killed after every few durable writes."""
    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0"))
    with thread as url:
        index, undisturbed = tmp_path / "index", tmp_path / "whole"
        folder = Path(shutil.copytree(corpus, tmp_path / "corpus"))
        edited, removed, _, added = sorted(folder.iterdir())
        new = added.rename(tmp_path / added.name)
        job = job_of(folder, built, llm=paid_endpoint(url))
        forked.run(**job, index=index)
        shutil.copytree(index, undisturbed)
        edited.write_text(f"{edited.read_text('utf-8')}\n\n{EDIT}\n", encoding="utf-8")
        removed.unlink()
        new.rename(added)
        before = chat_calls(thread)
        whole = forked.run(**job, index=undisturbed)
        paid_once = chat_calls(thread) - before
        assert whole["changed"]
        assert paid_once > 2
        deaths = 0
        for writes in cycle((17, 29, 109)):
            said = forked.run(**job, index=index, at_write=writes)
            if "snapshot" in said:
                break
            assert said == {"signal": signal.SIGKILL}
            deaths += 1
            assert deaths < 80
        assert deaths > 3
        assert said["snapshot"] == whole["snapshot"]
        paid_calls = chat_calls(thread) - before - paid_once
        assert paid_once <= paid_calls <= paid_once + deaths * IN_FLIGHT
        again = forked.run(**job, index=index)
        assert (again["snapshot"], again["sent"], again["changed"]) == (whole["snapshot"], 0, False)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kinds of processors are those of x86-64")
def test_a_build_continued_on_another_kind_of_processor_keeps_what_was_decided(
    corpus: Path, built: Any, tmp_path: Path
) -> None:
    """Clusters of layer 0 that were found are not found again, and no summary of them is paid again."""
    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0"))
    with thread as url, ExitStack() as stack:
        job = job_of(corpus, built, llm=paid_endpoint(url))
        kinds = (ForkedBuilds(OPENBLAS_CORETYPE=kind) for kind in ("Sandybridge", "Haswell"))  # of numpy's products
        old, new = (stack.enter_context(closing(builds)) for builds in kinds)
        whole = old.run(**job, index=tmp_path / "whole")
        n_whole = chat_calls(thread)
        stop = ("finished", "summarise layer 0")
        assert old.run(**job, index=tmp_path / "index", at_event=stop) == {"signal": signal.SIGKILL}
        n_before = chat_calls(thread) - n_whole
        done = new.run(**job, index=tmp_path / "index")
        assert chat_calls(thread) - 2 * n_whole <= 0.2 * (n_whole - n_before)  # higher clusters may differ
        labels = [label for kind, label, _ in whole["told"] if kind == "finished"]
        decided = set(labels[: labels.index(stop[1]) + 1])
        assert {"cluster layer 0", "embed layer 0"} & decided
        reused = {label for kind, label, is_reused in done["told"] if kind == "finished" and is_reused}
        assert decided <= reused
        again = old.run(**job, index=tmp_path / "index")
        assert (again["snapshot"], again["stages_run"], again["sent"]) == (done["snapshot"], 0, 0)
