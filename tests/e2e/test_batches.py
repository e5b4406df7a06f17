"""Batches across runs of the command: killed while they are out, interrupted, and brought home by another run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hirag_dist.testing.simulator import SimulatorOptions
from hirag_dist.testing.simulator.run import SimulatorThread

EXTRACTION_ALONE = {"extraction": "two_step", "max_layers": 0, "communities": {"report_min_entities": 1000}}


def test_what_is_out_is_brought_home_by_the_next_run(
    cli: Any, corpus: Path, paid: Any, make_config: Callable[..., Path], until: Any, tmp_path: Path
) -> None:
    """kill -9 while the first step's batch is out; Ctrl-C while the second's is; a run without batches ends it."""
    index = tmp_path / "index"
    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", batch_latency_ms=1500))
    with thread as url:
        config = make_config(llm=paid(url) | {"batch_poll_s": 0.05}, **EXTRACTION_ALONE)
        plain = ("index", *sorted(corpus.iterdir())[:2], "-i", index, "-c", config, "--executor", "inline")

        def batches() -> int:
            return sum(thread.stats()["batch"]["batches"].values())

        process = cli.start(*plain, "--batch")
        until(lambda: batches() == 1 and recorded(index) == 1, "batch")
        process.kill()
        process.communicate()
        status = cli.json("status", "-i", index)
        assert status["build"]["state"] == "killed"
        (out,) = status["batches"]
        assert (out["endpoint"], out["stage"]) == ("chat", "extract")
        assert "Pending batches" in cli("status", "-i", index).stdout

        process = cli.start(*plain, "--batch")
        until(lambda: batches() == 2 and recorded(index) == 1, "second batch")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
        assert process.returncode == 130, err
        assert "batches that are out: 1. The next run brings them home first" in err
        assert "Traceback" not in err
        assert cli.json("status", "-i", index)["build"]["sent"]["calls"] >= out["lines"]  # the first came home

        report = cli.json(*plain)
        assert not cli.json("status", "-i", index)["batches"]
        counts = thread.stats()
        single = counts["endpoints"]["/v1/chat/completions"]["calls"]
        assert counts["batch"]["repeats"] == 0
        chat = [row for row in report["usage"] if row["endpoint"] == "chat"]
        assert counts["batch"]["calls"] + single == sum(row["calls"] for row in chat)
        assert counts["batch"]["calls"] >= out["lines"]
        whole = cli.json(*(tmp_path / "whole" if part == index else part for part in plain))
        assert whole["snapshot"] == report["snapshot"]


def recorded(index: Path) -> int:
    """Return how many batches are noted as begun."""
    return sum('"batch": "batch_' in file.read_text("utf-8") for file in index.glob("batches/*.json"))
