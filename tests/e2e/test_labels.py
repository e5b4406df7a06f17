"""Labels at the command line: the output of `query` for a caller with some labels, and the exported index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DOCUMENTS = [
    {
        "text": "Captain Ahab commands the Pequod. The Pequod sails from Nantucket with Starbuck and Ishmael. Starbuck "
        "warns Ahab in Nantucket.",
        "title": "Public",
    },
    {
        "text": "Captain Ahab owes money to Zuleika Quorn. Zuleika Quorn waits in Havana. The Pequod secretly carries "
        "opium to Havana for Zuleika Quorn.",
        "title": "Quorn papers",
        "labels": ["owners"],
    },
]


@pytest.fixture
def index(cli: Any, tmp_path: Path) -> Path:
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, DOCUMENTS)))
    cli("index", tmp_path / "corpus.jsonl", "-i", tmp_path / "index", "--executor", "inline")
    return tmp_path / "index"


def test_query_as_somebody(cli: Any, index: Path, tmp_path: Path) -> None:
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
