"""The comparison's own parts: cost of a command with its orphans, documents and questions, rows, tables, settings."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import environments, table
from benchmarks.peers.__main__ import is_done, read_rows, with_row
from benchmarks.peers.corpus import CorpusRefused, split, take
from benchmarks.peers.job import Job
from benchmarks.peers.runner import PEERS, Peer, Settings, measure
from benchmarks.peers.settings import graphrag_settings, hirag_dist_settings
from benchmarks.peers.worker import alone, crowd, percentile
from hirag_dist.config.loader import load_config

# burns CPU in a child that it leaves behind, and says which
ORPHAN = """
import subprocess, sys, time
burn = "import time\\nwhile time.process_time() < 0.4: pass\\nopen(sys.argv[1], 'w').close()\\ntime.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", "import sys\\n" + burn, sys.argv[1]], start_new_session=True)
import os
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
held = bytearray(40_000_000)
time.sleep(0.5)
print(child.pid)
"""
# no process waits for its child, so the CPU of the child is not counted for any process
FORGETFUL = """
import signal, subprocess, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time\\nwhile time.process_time() < 1.0: pass"])
child.wait()
"""
# in a process of its own: adopting orphans holds for the whole process
METER = """
import json, os, sys
from pathlib import Path
from benchmarks.peers.metering import adopt_orphans, metered
adopt_orphans()
command = [sys.executable, "-c", *json.loads(sys.argv[1])]
cost = metered(command, env=os.environ, log=Path(sys.argv[2]), timeout_s=float(sys.argv[3]))
print(json.dumps(cost.figures() | {"returncode": cost.returncode}))
"""


def metered(arguments: list[str], log: Path, timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "-c", METER, json.dumps(arguments), str(log), str(timeout_s)]
    done = subprocess.run(command, capture_output=True, check=True, cwd=environments.ROOT)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_cost_of_a_command_holds_what_it_leaves_behind(tmp_path: Path) -> None:
    cost = metered([ORPHAN, str(tmp_path / "burnt")], tmp_path / "log", timeout_s=60)
    assert cost["returncode"] == 0
    assert cost["cpu_s"] >= 0.4
    assert cost["peak_mb"] >= 40
    assert cost["processes"] >= 2
    orphan = int((tmp_path / "log").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(orphan, 0)


def test_the_cost_of_a_command_holds_children_that_nobody_waits_for(tmp_path: Path) -> None:
    assert metered([FORGETFUL], tmp_path / "log", timeout_s=60)["cpu_s"] >= 0.7  # read up to 0.2 s before its end


def test_a_command_whose_time_is_up_is_ended(tmp_path: Path) -> None:
    cost = metered(["import time\nprint('on', flush=True)\ntime.sleep(600)"], tmp_path / "log", timeout_s=0.5)
    assert cost["returncode"] is None
    assert cost["wall_s"] < 60


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_corpus_is_its_first_documents(tmp_path: Path) -> None:
    documents = write(tmp_path / "corpus.jsonl", [{"text": f"Text {number}."} for number in range(20)])
    asked = write(tmp_path / "queries.jsonl", [{"query": f"What is {number}?"} for number in range(12)])
    tenth = take(documents, asked, 0.1, tmp_path / "out")
    assert [json.loads(line)["text"] for line in tenth.path.read_text().splitlines()] == ["Text 0.", "Text 1."]
    assert tenth.n_documents == 2
    odd = tmp_path / "odd.jsonl"
    odd.write_text('{"text": "one\u2028line\u0085 still"}\n{"text": "two"}\n', encoding="utf-8")
    assert take(odd, asked, 1.0, tmp_path / "odd").n_documents == 2, "only a line feed ends a line"
    assert take(documents, asked, 1.0, tmp_path / "all").digest != tenth.digest
    with pytest.raises(CorpusRefused, match="--fraction"):
        take(documents, asked, 0.0, tmp_path / "out")
    (tmp_path / "corpus.jsonl").write_text("{")
    with pytest.raises(CorpusRefused, match="line 1: not JSON"):
        take(documents, asked, 1.0, tmp_path / "out")


@pytest.mark.parametrize("size", [4, 7, 130])
def test_no_question_is_in_two_parts(size: int) -> None:
    questions = [str(number) for number in range(size)]
    parts = split(questions)
    every = [question for part in parts.values() for question in part]
    assert all(parts.values())
    assert len(every) == len(set(every)) <= size
    with pytest.raises(CorpusRefused, match="at least 4"):
        split(questions[:3])


async def test_a_crowd_asks_each_question_once_and_so_many_at_a_time() -> None:
    asked: list[str] = []
    at_once = most = 0

    async def ask(question: str) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        asked.append(question)
        return "" if question == "3" else "yes"

    found = await crowd(ask, [str(number) for number in range(10)], clients=4)
    assert sorted(asked) == [str(number) for number in range(10)]
    assert most == 4
    assert (found["questions"], found["empty"]) == (10, 1)
    assert (await alone(ask, ["1", "3"]))["empty"] == 1


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (percentile(values, 50), percentile(values, 99), percentile([7.0], 99)) == (50.0, 99.0, 7.0)


def row(peer: str, cpu_s: float, **more: Any) -> dict[str, Any]:
    index = {
        "cpu_s": cpu_s, "wall_s": 2 * cpu_s, "load_before": 0.5, "load_after": 1.5, "peak_mb": 100.0,
        "chat_calls": 10, "chat_input_tokens": 900_000, "chat_output_tokens": 100_000,
        "embedding_calls": 3, "embedded_texts": 30,
    }  # fmt: skip
    asked = {"questions": 5, "p50_ms": 1.0, "p99_ms": 2.0, "cpu_ms": 4 * cpu_s, "empty": 0}
    base = {"peer": peer, "version": "1", "digest": "d", "corpus": "toy", "documents": 2, "tokens": 1234}
    return base | {"index": index, "sizes": {"entities": 7, "relations": 8}, "alone": asked} | more


def test_the_table_says_what_a_package_has_none_of_and_what_failed() -> None:
    rows = [
        row("hirag-dist", 2.0),
        row("other", 5.0),
        row("broken", 1.0, failed="exit status 1"),
        row("odd", 1.0, doubt="2 empty"),
    ]
    said = table.markdown(rows)
    assert "### toy: 2 documents, 1,234 tokens" in said
    assert "| other 1 | 5.0 | 10.0 | 0.5 → 1.5 | 100 | 10 | 1.00 | 3 | 30 | 7 | 8 | – | – |" in said
    assert "| other | 2.50 | 1.00 | 1.00 | 1.00 | 2.50 | – | – |" in said
    assert "- **broken** failed: exit status 1" in said
    assert "| broken" not in said
    assert "- **odd**: 2 empty" in said
    assert len(table.terminal(rows)) == 3


def test_ratios_are_to_the_same_corpus_alone() -> None:
    assert table.ratios([row("hirag-dist", 2.0), row("other", 5.0) | {"digest": "another"}]) == []


def test_a_run_goes_on_where_a_package_has_no_good_row(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [row("done", 1.0), row("broken", 1.0, failed="why")])
    rows = read_rows(path)
    assert [is_done(rows, name, "d") for name in ("done", "broken", "new")] == [True, False, False]
    assert not is_done(rows, "done", "another")
    assert read_rows(tmp_path / "none.jsonl") == []


def test_a_row_takes_the_place_of_the_one_before_and_packages_keep_their_order() -> None:
    rows = [row("hirag-dist", 1.0) | {"digest": "old"}, row("graphrag", 1.0), row("hirag-dist", 1.0, failed="why")]
    rows = with_row(rows, row("hirag-dist", 2.0))
    assert [(each["peer"], each["digest"], each["index"]["cpu_s"]) for each in rows] == [
        ("hirag-dist", "old", 1.0),
        ("hirag-dist", "d", 2.0),
        ("graphrag", "d", 1.0),
    ]


def test_a_package_that_cannot_be_loaded_is_a_row_with_its_reason(tmp_path: Path) -> None:
    documents = write(tmp_path / "corpus.jsonl", [{"text": "Newton wrote to Hooke."}])
    asked = write(tmp_path / "queries.jsonl", [{"query": f"Who is {number}?"} for number in range(4)])
    corpus = take(documents, asked, 1.0, tmp_path / "out")
    settings = Settings(corpus, tmp_path / "out", tmp_path / "cache", dim=64, clients=2, timeout_s=120)
    found = measure("odd", Peer("no_such_adapter"), settings)
    assert "No module named 'benchmarks.peers.adapters.no_such_adapter'" in found["failed"]
    log = Path(re.findall(r"log: (\S+)\)", found["failed"])[0])
    assert "ModuleNotFoundError" in log.read_text()
    assert table.markdown([found]).endswith(f"- **odd** failed: {found['failed']}\n")


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    job = Job("lightrag", "query", "f", "c", "r", "http://x/v1", 384, {"alone": ["q"]}, checkout="/there")
    job.write(tmp_path / "job.json")
    assert Job.read(tmp_path / "job.json") == job


def test_settings_name_the_endpoint_and_the_size_of_vectors(tmp_path: Path) -> None:
    path = tmp_path / "hirag.yaml"
    path.write_text(hirag_dist_settings("http://127.0.0.1:9/v1", 64), encoding="utf-8")
    llm = load_config(str(path), {}, {}).config.llm
    assert llm.roles.embed == "vectors"
    assert (llm.endpoints["vectors"].base_url, llm.endpoints["vectors"].dim) == ("http://127.0.0.1:9/v1", 64)
    found = graphrag_settings(tmp_path, "http://127.0.0.1:9/v1", "key", 64)
    assert found["vector_store"]["vector_size"] == 64
    assert found["completion_models"]["default_completion_model"]["api_base"] == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("peer", [each for each in PEERS.values() if each.package], ids=lambda each: each.package)
def test_requirements_are_pinned_with_hashes_and_name_no_index(peer: Any) -> None:
    text = (environments.REQUIREMENTS / f"{peer.adapter}.txt").read_text()
    pins = re.findall(r"^(\S+?)==", text, re.MULTILINE)
    assert peer.package in pins
    assert len(re.findall(r"^\S+==\S+ .*\\\n    --hash=sha256:", text, re.MULTILINE)) == len(pins)
    assert not re.search(r"^--(?!hash)|://(?!github)", text, re.MULTILINE)


def test_an_environment_has_nothing_of_the_callers_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("TOP_K", "1000")
    found = environments.variables("http://127.0.0.1:9/v1", tmp_path)
    assert "secret" not in found.values()
    assert "TOP_K" not in found
    ranks = Path(found["TIKTOKEN_CACHE_DIR"])
    assert (
        ranks / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
    ).stat().st_size > 1_000_000  # cl100k_base's, as tiktoken names it
