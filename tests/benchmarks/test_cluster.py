"""Parts of the load harness: kept results of earlier runs, the simulated counterpart, probes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.cluster import Case, alike, asked, chunks, configured, kept, main, ratios
from benchmarks.cluster_parts import Limits, place, serving, size
from benchmarks.cluster_probes import Probe
from benchmarks.scheduler import setup_of
from hirag_dist.config.model import Config

LIMITS = Limits(latency_ms=500.0, jitter=0.3, rpm=1200.0, tpm=None, max_concurrent=64)


OPTIONS = {"work": "extract", "chunks": 320}
WHOLE = {"case": "whole", "options": OPTIONS}


def test_a_line_that_was_cut_is_run_again_and_not_joined_with_what_comes_after(tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    assert kept(None, OPTIONS) == kept(out, OPTIONS) == []
    out.write_text(json.dumps(WHOLE) + "\n" + '{"case": "cu', encoding="utf-8")
    assert kept(out, OPTIONS) == [WHOLE]
    with out.open("a", encoding="utf-8") as more:
        more.write(json.dumps(WHOLE | {"case": "next"}) + "\n")
    assert [line["case"] for line in kept(out, OPTIONS)] == ["whole", "next"]


def test_lines_of_other_options_are_not_held_against_these(tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    out.write_text(json.dumps(WHOLE) + "\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"other options.*name another file"):
        kept(out, OPTIONS | {"chunks": 640})
    assert kept(out, OPTIONS) == [WHOLE]


def test_a_place_for_an_index_is_new_and_goes_in_the_end(tmp_path: Path) -> None:
    (tmp_path / "of another").touch()
    with place(str(tmp_path)) as one, place(tmp_path.as_uri()) as other:
        assert not Path(one).exists()
        Path(one, "work").mkdir(parents=True)
        Path(one, "work", "file").write_bytes(b"12")
        assert other.startswith("file://")  # nothing was written there
    assert [each.name for each in tmp_path.iterdir()] == ["of another"]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--address", "127.0.0.1:1"], id="no place that its nodes reach"),
        pytest.param(["--address", "127.0.0.1:1", "--index", "x", "--kill", "1"], id="nodes that are not ours"),
    ],
)
def test_a_cluster_of_others_needs_a_place_and_is_not_harmed(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cluster", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--address needs --index" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--latency-ms", "0", "--rpm", "600"], ["--max-concurrent", "0"]])
def test_a_run_that_nothing_bounds_is_refused_before_it_is_made(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cluster", *options, "--address", "127.0.0.1:1", "--index", "x"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--latency-ms and --max-concurrent are above 0" in capsys.readouterr().err


def test_an_endpoint_that_says_much_goes_on(tmp_path: Path) -> None:
    said_all = tmp_path / "said all"
    program = (
        "import pathlib, sys, time\n"
        "print('listens on http://127.0.0.1:8000/v1 until Ctrl-C', file=sys.stderr, flush=True)\n"
        "print('x' * 1_000_000, file=sys.stderr, flush=True)\n"
        f"pathlib.Path({str(said_all)!r}).touch()\n"
        "time.sleep(600)\n"
    )
    with serving([sys.executable, "-c", program]) as url:
        assert url == "http://127.0.0.1:8000/v1"
        give_up_at = time.monotonic() + 30
        while not said_all.exists():
            assert time.monotonic() < give_up_at
            time.sleep(0.01)


def test_an_endpoint_that_does_not_start_says_why() -> None:
    with (
        pytest.raises(SystemExit, match="did not start: the port is taken"),
        serving([sys.executable, "-c", "raise SystemExit('the port is taken')"]),
    ):
        pass
    with pytest.raises(SystemExit, match="it says nothing"), serving(["sleep", "600"], timeout_s=0.0):
        pass


def test_what_is_held_against_each_other_was_asked_for_alike() -> None:
    arguments = argparse.Namespace(work="extract", chunks=320, address=None, kill_every_s=8.0, inputs=["a"])
    first = asked(arguments, LIMITS)
    arguments.inputs = ["b"]
    assert asked(arguments, LIMITS) == first == json.loads(json.dumps(first))
    arguments.work = "build"
    assert asked(arguments, LIMITS) != first


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
    names = ["ray::QuotaActor.ask", "ray::IDLE"]
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
        assert found[processes[0].pid][0] == "coordinator"
        assert processes[1].pid not in found
    finally:
        for process in processes:
            process.communicate()
