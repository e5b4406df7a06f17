"""The command line as a user meets it: exit codes, one clear line for each trouble, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hirag_dist.storage.store import Store
from hirag_dist.testing.simulator import SimulatorOptions
from tests.e2e.conftest import paid_endpoint, until
from tests.ledger_sizes import ledger_size
from tests.simulator_thread import SimulatorThread

QUESTION = "What did Newton write about whiteness and colours?"
INLINE = ("--executor", "inline")


class TestIndex:
    @pytest.mark.parametrize("what", ["an empty folder", "no such file", "only white space"])
    def test_nothing_to_read_is_a_usage_error(self, cli: Any, tmp_path: Path, what: str) -> None:
        folder = tmp_path / "input"
        if what != "no such file":
            folder.mkdir()
        if what == "only white space":
            (folder / "a.txt").write_text(" \n\n ")
        said = cli("index", folder, "-i", tmp_path / "index", *INLINE, code=2).stderr
        *progress, error = said.splitlines()
        assert error.startswith("hirag-dist: ")
        assert all(line.startswith("read: ") for line in progress)

    def test_a_file_that_cannot_be_read_makes_it_incomplete(
        self, cli: Any, built: Any, corpus: Path, tmp_path: Path
    ) -> None:
        folder = shutil.copytree(corpus, tmp_path / "corpus")
        (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nthis is no PDF\n%%EOF\n")
        command = ("index", folder, "-i", tmp_path / "index", "-c", built.config, *INLINE)
        report = cli.json(*command, code=3)
        assert (report["complete"], report["dead_letters"]) == (False, 1)
        assert cli.json(*command, code=3)["stages_run"] == 1, "the broken file alone is read again"
        letters = cli.json("status", "-i", tmp_path / "index")["letters"]
        assert [(letter["stage"], letter["unit_id"]) for letter in letters] == [("read", "broken.pdf")]
        assert "PDF" in letters[0]["reason"]
        assert report["snapshot"] != built.snapshot  # what is missing shows in the id
        said = cli(*command[:3], tmp_path / "strict", *command[4:], "--require-complete", code=1).stderr
        assert "--require-complete" in said
        assert not (tmp_path / "strict" / "current").exists()

    def test_stops_before_the_budget_is_passed_and_goes_on_later(
        self, cli: Any, corpus: Path, make_config: Callable[..., Path], tmp_path: Path
    ) -> None:
        thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", latency_ms=10))
        with thread as url:
            config = make_config(llm=paid_endpoint(url))
            command = ("index", corpus, "-i", tmp_path / "index", "-c", config, *INLINE)
            said = cli(*command, "--max-tokens", "20000", code=4).stderr
            assert "the limit of 20000 tokens" in said
            total = thread.stats()["total"]
            assert 0 < total["input_tokens"] + total["output_tokens"] <= 20_000
            stored = ledger_size(Store(str(tmp_path / "index"))).records
            assert stored == total["calls"]  # whatever was in flight when the limit was met is kept
            said = cli(*command, "--max-usd", "0.001", code=4).stderr
            assert "the limit of $0.001" in said
            report = cli.json(*command)
            assert report["this_run"]["calls"] + stored <= thread.stats()["total"]["calls"] + 1
            assert report["total_usd"] > 0

    def test_one_build_at_a_time(
        self, cli: Any, corpus: Path, make_config: Callable[..., Path], tmp_path: Path
    ) -> None:
        with SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", latency_ms=30_000)) as url:
            command = ("index", corpus, "-i", tmp_path / "index", "-c", make_config(llm=paid_endpoint(url)), *INLINE)
            first = cli.start(*command)
            try:
                until((tmp_path / "index" / "run.lock").exists)
                said = cli(*command, code=5).stderr
                assert f"is being built by process {first.pid}" in said
            finally:
                first.kill()
                first.communicate()
        with SimulatorThread(SimulatorOptions(listen="127.0.0.1:0")) as url:  # its holder is dead: taken over
            command = (*command[:5], make_config(llm=paid_endpoint(url)), *INLINE)
            assert cli.json(*command)["complete"]


class TestLooking:
    def test_export(self, cli: Any, built: Any, tmp_path: Path) -> None:
        cli("export", "-i", built.folder, "--to", tmp_path / "graph.graphml")
        assert (tmp_path / "graph.graphml").read_text("utf-8").count("<node ") == built.report["counts"]["entities"]
        written = cli.json("export", "-i", built.folder, "--to", tmp_path / "tables")["written"]
        rows = {Path(file).stem: pq.read_table(file).num_rows for file in written}
        assert rows["entities"] == built.report["counts"]["entities"]
        imported = cli.json("import", tmp_path / "tables", "--index", tmp_path / "copy")
        assert imported["complete"]
        assert imported["counts"]["relations"] > 0
        assert imported["counts"]["chunks"] == built.report["counts"]["chunks"]
        assert "use the extension .graphml" in cli("export", "-i", built.folder, "--to", "x.csv", code=2).stderr


class TestQuery:
    def test_answer(self, cli: Any, built: Any) -> None:
        said = cli.json("query", QUESTION, "-i", built.folder, "--mode", "nobridge")
        assert said["text"]
        assert {citation["ref"] for citation in said["citations"]} <= set(said["retrieval"]["context_refs"])
        text = cli("query", QUESTION, "-i", built.folder, "--stream").stdout
        assert said["text"][:40] in text

    def test_answers_from_all_of_the_corpus_tell_what_they_cost(self, cli: Any, built: Any) -> None:
        run = cli("query", QUESTION, "-i", built.folder, "--mode", "graphrag-global", "--community-level", "0")
        assert re.search(r"This question sent \d+ calls, [\d,]+ tokens", run.stderr)
        assert "Map-reduce: " in run.stdout
        said = cli.json("query", QUESTION, "-i", built.folder, "--mode", "text-map-reduce")
        work = said["retrieval"]["map_work"]
        assert work["calls"] == work["parts"] > 0
        assert said["sent"]["calls"] == work["calls"] + bool(said["retrieval"]["context_refs"])
        assert said["sent"]["tokens"] == said["input_tokens"] + said["output_tokens"]

    def test_wrong_questions_are_usage_errors(self, cli: Any, built: Any, tmp_path: Path) -> None:
        assert "there is no 'globl'" in cli("query", QUESTION, "-i", built.folder, "--mode", "globl", code=2).stderr
        assert "it is empty" in cli("query", "  ", "-i", built.folder, code=2).stderr
        assert "--top-n" in cli("query", QUESTION, "-i", built.folder, "--top-n", "0", code=2).stderr
        assert "--index" in cli("query", QUESTION, code=2).stderr
        assert "holds no index" in cli("query", QUESTION, "-i", tmp_path / "nowhere", code=1).stderr
        other = ("--set", "llm.endpoints.small={kind: hashing, dim: 64}", "--set", "llm.roles.embed=small")
        assert "llm.roles.embed" in cli("query", QUESTION, "-i", built.folder, *other, code=2).stderr


class TestServe:
    @pytest.fixture
    def served(self, cli: Any, built: Any, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str, str, Path]]:
        index = Path(shutil.copytree(built.folder, tmp_path / "copy"))
        listen = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        process = cli.start("serve", "-i", index, *listen, "--set", "vectors.backend=milvus-lite")
        lines = iter(process.stderr.readline, "")
        address = next(found.group(1) for line in lines if (found := re.search(r"Serving on (\S+)\.", line)))
        page = next(found.group(1) for line in lines if (found := re.search(r"Browser page: (\S+)", line)))
        yield process, address, page, index
        process.kill()
        process.communicate()

    @pytest.mark.smoke
    def test_asked_drained_and_ended(
        self, cli: Any, served: tuple[subprocess.Popen[str], str, str, Path], built: Any
    ) -> None:
        process, address, page, index = served
        with urllib.request.urlopen(page, timeout=60) as response:
            assert "Ask the index" in response.read().decode()
        answer = cli.json("query", QUESTION, "--server", address)
        assert answer["text"]
        remote = answer["retrieval"]
        here = cli.json("query", QUESTION, "-i", index, "--context-only")  # Lite is the service's: memory, and the same
        assert [item["entity_id"] for item in remote["local"]] == [item["entity_id"] for item in here["local"]]
        assert remote["context"] == here["context"]
        own = ("query", QUESTION, "-i", index, "--set", "vectors.backend=milvus-lite")
        assert "another process owns the Milvus Lite file" in cli(*own, code=1).stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        assert "Traceback" not in process.stderr.read()


def test_a_closed_pipe_is_no_trouble(cli: Any, built: Any) -> None:
    process = cli.start("config", "schema", stdout=subprocess.PIPE)
    os.close(os.dup(process.stdout.fileno()))
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    process.wait(120)
    assert "Traceback" not in err


PUBLIC = "Captain Ahab commands the Pequod. The Pequod sails from Nantucket with Starbuck. Starbuck warns Ahab."
PAPERS = "Captain Ahab owes money to Zuleika Quorn. The Pequod carries opium to Havana for Zuleika Quorn."


def test_query_as_somebody(cli: Any, tmp_path: Path) -> None:
    documents = [{"text": PUBLIC, "title": "Public"}, {"text": PAPERS, "title": "Quorn papers", "labels": ["owners"]}]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    index = tmp_path / "index"
    cli("index", tmp_path / "corpus.jsonl", "-i", index, *INLINE)
    ask = ("query", "Where does Captain Ahab of the Pequod sail?", "-i", index, "--set", "vectors.backend=memory")
    everything = json.dumps(cli.json(*ask))
    assert "Quorn" in everything
    visitor = cli.json(*ask, "--as-label", "")
    assert visitor["retrieval"]["local"]
    assert "Quorn" not in json.dumps(visitor)
    assert "Havana" not in json.dumps(visitor)
    assert "Quorn" in json.dumps(cli.json(*ask, "--as-label", "other", "--as-label", "owners"))
    wished = cli.json(*ask, "--label", "owners", "--context-only")
    assert {source["title"] for source in wished["sources"]} == {"Quorn papers"}
    assert not cli.json(*ask, "--label", "owners", "--as-label", "", "--context-only")["sources"]
    lite = cli.json("query", "Pequod", "-i", index, "--as-label", "", "--set", "vectors.backend=milvus-lite")
    assert lite["retrieval"]["local"]
    assert "Quorn" not in json.dumps(lite)
    refused = cli("query", "Pequod", "--server", "127.0.0.1:1", "--as-label", "owners", code=2).stderr
    assert "--as-label is for --index" in refused
    written = cli.json("export", "-i", index, "--to", tmp_path / "graph.graphml")["written"]
    assert "Quorn" in Path(written[0]).read_text("utf-8"), "an export is its owner's: of everything"
