"""The recorded replies of the demo."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from hirag_dist import build_index, load_config, open_index
from hirag_dist.cli.demo import _write_config
from hirag_dist.core.prompts.answer_requests import answer_request
from hirag_dist.core.prompts.templates import Prompts
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
