"""Dead letters as a user meets them, against an endpoint over HTTP that refuses chosen requests."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from hirag_dist.composition.build_records import earlier_builds
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.storage.layout import LOCK
from hirag_dist.storage.store import Store
from hirag_dist.types import Message
from tests.scripted_endpoint import Asked, Endpoint

INLINE = ("--executor", "inline")
REFUSAL = "I'm sorry, but I cannot help with that."
KEYS = {"max_reject_ratio": 0.5, "pack_tokens": 0}  # every unit by itself, so that calls can be counted


class Moody:
    """The built-in model behind HTTP. It refuses what holds `dislikes`, until that is empty."""

    def __init__(self) -> None:
        self.dislikes = ""
        self.asked: list[str] = []
        self.endpoint = Endpoint(self._reply)

    def config(self) -> dict[str, Any]:
        chat = {"base_url": self.endpoint.url, "model": "m", "max_concurrent": 4, "output": "delimited"}
        roles = dict.fromkeys(("extract", "summarise", "report"), "chat")
        return KEYS | {"llm": {"endpoints": {"chat": chat, "builtin-embedder": {"kind": "hashing"}}, "roles": roles}}

    def _reply(self, asked: Asked) -> str:
        self.asked.append(asked.user.partition("\n\nAn earlier reply could not be used")[0])
        if self.dislikes and self.dislikes in asked.user:
            return f"{REFUSAL} ({len(self.asked)})"
        return reply_to([Message("system", asked.system), Message("user", asked.user)], None)


@pytest.fixture
def model() -> Iterator[Moody]:
    made = Moody()
    with closing(made.endpoint):
        yield made


@pytest.fixture
def config(model: Moody, make_config: Callable[..., Path]) -> Path:
    return make_config(**model.config())


@pytest.fixture(scope="module")
def whole(forked: Any, make_config: Callable[..., Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The snapshot of a build that nothing disturbed."""
    model = Moody()
    config = yaml.safe_load(make_config(**model.config()).read_text("utf-8"))
    with closing(model.endpoint):
        done = forked.run(inputs=[str(corpus)], index=tmp_path_factory.mktemp("whole"), config=config)
    return str(done["snapshot"])


DISLIKED = "Louisiana"  # in some chunks of one of the four documents, and in texts derived from them


def test_from_a_refusal_to_a_whole_index(
    cli: Any, model: Moody, config: Path, corpus: Path, whole: str, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    common = ("-i", index, "-c", config, *INLINE)
    model.dislikes = DISLIKED
    report = cli.json("index", corpus, *common, code=3)
    assert report["dead_letters"] > 1
    letters = cli.json("status", "-i", index)["letters"]
    assert len(letters) == report["dead_letters"]
    for letter in letters:
        assert DISLIKED in letter["request"]
        assert letter["reply"].startswith(REFUSAL)
        assert (letter["attempts"], letter["dropped"]) == (3, None)
    shown = cli("status", "-i", index, "--letters").stdout
    placed = next(letter for letter in letters if letter["place"] is not None)
    assert placed["place"]["uri"] in shown
    assert REFUSAL in shown

    calls = len(model.endpoint.asked)
    assert cli.json("index", corpus, *common, code=3)["this_run"]["calls"] == 0
    still = cli.json("retry", *common, code=3)
    assert still["this_run"]["calls"] == len(model.endpoint.asked) - calls == 3 * len(letters)
    assert {letter["attempts"] for letter in cli.json("status", "-i", index)["letters"]} == {6}

    model.dislikes = ""
    said = cli("retry", "-i", index, *INLINE, code=2).stderr
    assert "this is not the configuration of the last build" in said
    assert "chunk_tokens: 150 → 1200" in said
    model.asked.clear()
    (tmp_path / "elsewhere").mkdir()
    cli.cwd = tmp_path / "elsewhere"
    healed = cli.json("retry", *common)
    assert (healed["complete"], healed["snapshot"]) == (True, whole)
    chunks = {letter["request"].partition("user: ")[2] for letter in letters if letter["stage"] == "extract"}
    assert chunks < set(model.asked)
    extracted = [text for text in model.asked if "<text>" in text]
    assert sorted(extracted) == sorted(chunks)  # each once, and no other chunk
    assert cli.json("status", "-i", index)["letters"] == []
    assert [one["action"] for one in earlier_builds(Store(str(index)))] == ["retry", "index", "index"]


def test_another_build_is_waited_for(cli: Any, tmp_path: Path, corpus: Path) -> None:
    index = tmp_path / "index"
    cli("index", corpus, "-i", index, *INLINE)
    holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": "now", "token": "t", "epoch": 1}
    Store(str(index)).write_json(LOCK, holder | {"beat": time.time()})
    for argv in (("retry", "-i", index, *INLINE), ("retry", "-i", index, "--drop")):
        assert "wait for it (--wait SECONDS)" in cli(*argv, code=5).stderr
        assert "waiting up to 0 s" in cli(*argv, "--wait", "0.2", code=5).stderr


def test_a_retry_killed_anywhere_goes_on(
    forked: Any, model: Moody, config: Path, corpus: Path, whole: str, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    job = {"inputs": [str(corpus)], "config": yaml.safe_load(config.read_text("utf-8"))}
    model.dislikes = DISLIKED
    assert forked.run(**job, index=index)["snapshot"] != whole
    model.dislikes = ""
    deaths = 0
    for write in count(2, 5):
        said = forked.run(**job, index=index, at_write=write, retry=True)
        if "snapshot" in said:
            break
        assert said == {"signal": signal.SIGKILL}
        deaths += 1
        if deaths == 2:  # a plain build between two retries goes on with what is there
            assert forked.run(**job, index=index)["snapshot"]
        assert deaths < 60
    assert deaths > 3
    assert said["snapshot"] == whole
    again = forked.run(**job, index=index)
    assert (again["snapshot"], again["sent"]) == (whole, 0)
