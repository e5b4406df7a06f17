"""An index on an object store: built, resumed and asked there, with the id that a local folder gives."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

moto = pytest.importorskip("moto.server")

CORPUS = Path(str(resources.files("hirag_dist.samples"))) / "corpus"
INPUTS = [str(CORPUS / name) for name in ("melville-moby-dick.md", "newton-queries-on-the-aether.md")]
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "very-secret", "AWS_REGION": "us-east-1"}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"{host}:{port}"
    store = fs.S3FileSystem(endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True)
    store.create_dir("bucket")
    yield f"s3://bucket/index?endpoint_override={endpoint}&scheme=http&region=us-east-1"
    server.stop()


def run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "hirag_dist", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_index_lives_on_an_object_store(bucket: str, tmp_path: Path) -> None:
    built = run("index", *INPUTS, "--index", bucket, "--executor", "inline")
    again = run("index", *INPUTS, "--index", bucket, "--executor", "inline")
    local = run("index", *INPUTS, "--index", str(tmp_path / "index"), "--executor", "inline")
    assert built["snapshot"] == again["snapshot"] == local["snapshot"]
    assert again["stages_run"] == 0
    answer = run("query", "Who is Moby Dick?", "--index", bucket)
    assert answer["citations"]
    smaller = run("index", INPUTS[0], "--index", bucket, "--executor", "inline")
    pruned = run("prune", "--index", bucket, "--keep", "0", "--older-than", "0s")
    assert [one["snapshot"] for one in pruned["removed"]] == [built["snapshot"]]
    assert pruned["kept"] == [smaller["snapshot"]]
    assert "very-secret" not in json.dumps([built, again, answer, pruned])
