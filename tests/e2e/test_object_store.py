"""An index on an object store: built, resumed and asked there, with the id that a local folder gives."""

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tests.storage.s3_server import s3_server
from tests.toy_builds import Bench

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


def test_an_index_lives_on_an_object_store(cli: Any, bucket: str, tmp_path: Path) -> None:
    cli.environ = KEYS
    inline = ("--executor", "inline")
    built = cli.json("index", *INPUTS, "--index", bucket, *inline)
    again = cli.json("index", *INPUTS, "--index", bucket, *inline)
    local = cli.json("index", *INPUTS, "--index", tmp_path / "index", *inline)
    assert built["snapshot"] == again["snapshot"] == local["snapshot"]
    assert again["stages_run"] == 0
    answer = cli.json("query", "Who is Moby Dick?", "--index", bucket)
    assert answer["citations"]
    smaller = cli.json("index", INPUTS[0], "--index", bucket, *inline)
    pruned = cli.json("prune", "--index", bucket, "--keep", "0", "--older-than", "0s")
    assert [one["snapshot"] for one in pruned["removed"]] == [built["snapshot"]]
    assert pruned["kept"] == [smaller["snapshot"]]
    assert "very-secret" not in json.dumps([built, again, answer, pruned])


def test_an_update_gets_the_objects_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as (app, uri):
        corpus = uri.replace("some/index", "corpus")
        store, folder = fs.FileSystem.from_uri(corpus)

        def put(name: str, content: str) -> None:
            with store.open_output_stream(f"{folder}/{name}") as stream:
                stream.write(content.encode())

        bench = Bench(tmp_path, base_id="")
        for number in range(5):
            put(f"{number}.txt", f"word{number} other{number}")
        seen: list[list[str]] = []
        for _ in range(3):
            app.reads.clear()
            bench.run_work(lambda build: build.index([corpus]))
            seen.append(sorted({path for path in app.reads if path.endswith(".txt")}))
            put("1.txt", "word1 other1")  # the same again: the ETag stays
            put("3.txt", f"word3 other{len(seen)}")
        assert seen == [[f"/bucket/corpus/{number}.txt" for number in range(5)], *[["/bucket/corpus/3.txt"]] * 2]
