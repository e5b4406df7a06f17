"""The load harness beside its runs: what is kept of an earlier one, what is simulated beside it, what is probed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.cluster import Case, Limits, alike, chunks, configured, kept, ratios, size
from benchmarks.cluster_probes import Probe
from benchmarks.scheduler import setup_of
from hirag_dist.config import Config

LIMITS = Limits(latency_ms=500.0, jitter=0.3, rpm=1200.0, tpm=None, max_concurrent=64)


def test_a_line_that_was_cut_is_run_again(tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    assert kept(None) == kept(out) == []
    out.write_text(json.dumps({"case": "whole"}) + "\n" + '{"case": "cu', encoding="utf-8")
    assert kept(out) == [{"case": "whole"}]


def test_what_was_cut_is_not_joined_with_what_comes_after(tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    out.write_text(json.dumps({"case": "whole"}) + "\n" + '{"case": "cu', encoding="utf-8")
    kept(out)
    with out.open("a", encoding="utf-8") as more:
        more.write(json.dumps({"case": "next"}) + "\n")
    assert kept(out) == [{"case": "whole"}, {"case": "next"}]


def test_the_simulation_gets_the_same_calls() -> None:
    setup = alike(Case("extract", 4, 2), LIMITS, chunks=320, calls=640, tokens_in=640_000, tokens_out=320_000)
    assert (setup.workers, setup.deaths, setup.chunks, setup.calls_a_chunk) == (4, 2, 320, 2)
    assert (setup.input_tokens, setup.output_tokens, setup.rpm, setup.latency_s) == (1000, 500, 1200.0, 0.5)
    line = json.loads(json.dumps({"simulated": {name: getattr(setup, name) for name in setup.__slots__}}))
    assert setup_of(line["simulated"] | {"of a later version": 1}) == setup


def test_ratios_are_to_the_first_case() -> None:
    first, line = {"calls_per_s": 10.0, "wall_s": 60.0}, {"calls_per_s": 15.0, "wall_s": 40.0}
    assert ratios(line, first) == {"speed_over_first": 1.5, "wall_over_first": 0.667}


def test_the_configuration_is_one_and_no_two_chunks_are_the_same() -> None:
    config = Config.model_validate(configured("http://127.0.0.1:1/v1", LIMITS, "10.0.0.1:6379", 4))
    assert config.execution.workers == 4
    assert config.llm.endpoints["sim"].rpm == 1200.0
    table = chunks(config, 50, "")
    assert len(set(table["text"].to_pylist())) == len(set(table["chunk_id"].to_pylist())) == 50


def test_bytes_of_an_index_by_path_and_by_uri(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"12345")
    (tmp_path / "c").write_bytes(b"678")
    assert size(str(tmp_path)) == size(tmp_path.as_uri()) == 8


@pytest.mark.skipif(sys.platform != "linux", reason="a process's title is its command line only there")
def test_a_probe_sees_what_calls_itself_a_worker() -> None:
    names = ["ray::TreasuryActor.ask", "ray::IDLE"]
    processes = [
        subprocess.Popen(
            ["bash", "-c", f'exec -a "{name}" "{sys.executable}" -c "import sys; sys.stdin.read()"'],
            stdin=subprocess.PIPE,
        )
        for name in names
    ]
    try:
        give_up_at = time.monotonic() + 30
        while all(pid != processes[0].pid for _, pid, _ in Probe().usage()):  # until bash has become it
            assert time.monotonic() < give_up_at
        found = {pid: use for (_, pid, _), use in Probe().usage().items()}
        assert found[processes[0].pid][0] == "treasury"
        assert processes[1].pid not in found
    finally:
        for process in processes:
            process.communicate()
