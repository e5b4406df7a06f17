"""The recorded replies of the demo."""

from __future__ import annotations

import re
import sys
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest

from hirag_dist import build_index, demo, load_config, open_index
from hirag_dist.cli._output import STILL_STARTING
from hirag_dist.core.prompts.requests import answer_request
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.demo import _service, _write_config
from hirag_dist.errors import ServiceError
from hirag_dist.llm.endpoints.recorded import RecordedModel

SAMPLES = Path(str(resources.files("hirag_dist.samples")))
REFERENCE = re.compile(r"\[[A-Z]\d+\]")


@pytest.mark.integration
async def test_every_request_of_the_demo_has_a_recorded_reply(tmp_path: Path) -> None:
    config = load_config(_write_config(tmp_path / "demo", SAMPLES / "replies.jsonl"))
    result = build_index(SAMPLES / "corpus", tmp_path / "demo", config=config)
    models = {row["model"] for row in result.to_dict()["usage"] if row["role"] != "embed"}
    assert models == {"recorded:claude"}, "hirag_dist/samples/SOURCES.md says what to do"
    assert [layer["n_entities"] for layer in result.to_dict()["layers"]] == [273, 42, 4]
    assert result.complete
    recording = RecordedModel(str(SAMPLES / "replies.jsonl"))  # refuses what was not recorded
    questions = (SAMPLES / "questions.txt").read_text(encoding="utf-8").splitlines()[:2]
    with open_index(tmp_path / "demo", config=config) as index:
        for question in questions:
            found = index.retrieve(question)
            reply = await recording.complete(answer_request(question, found.context, Prompts()))
            cited = {ref for ref in found.context_refs if f"[{ref}]" in reply.text}
            assert cited
            assert len(cited) == len(set(REFERENCE.findall(reply.text))), "every reference names a record"


@pytest.mark.integration
def test_the_demo_waits_for_as_long_as_its_service_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = 0.0

    def sleep(pause: float) -> None:
        nonlocal seconds
        seconds += pause
        said = f"{STILL_STARTING}\n" + ("Serving on 127.0.0.1:5. Ask it\n" if seconds > 300 else "")
        log.write_text(said, encoding="utf-8")

    monkeypatch.setattr(demo, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: seconds))
    log = tmp_path / "serve.log"
    with _service([sys.executable, "-c", "import time; time.sleep(600)"], log) as address:
        assert address == "127.0.0.1:5"
    assert capsys.readouterr().out.count(STILL_STARTING) == 1


def test_headings_of_the_demo_are_80_characters_wide_where_they_are_piped(capsys: pytest.CaptureFixture[str]) -> None:
    demo._rule("Next steps")
    line = capsys.readouterr().out.rstrip("\n")
    assert ("Next steps" in line, len(line)) == (True, 80)


@pytest.mark.integration
def test_the_demo_says_why_its_service_ended(tmp_path: Path) -> None:
    ending = [sys.executable, "-c", "import sys; print('hirag-dist: port 1 is in use'); sys.exit(1)"]
    said = "the service ended with code 1 before it answered: hirag-dist: port 1 is in use"
    with pytest.raises(ServiceError, match=said), _service(ending, tmp_path / "serve.log"):
        pass
