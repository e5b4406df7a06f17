"""The built-in model as a whole: which tasks it does, and that it always says the same."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from hirag_dist.core.prompts.requests import answer_request
from hirag_dist.core.prompts.templates import Prompts, extraction_request, report_request, summary_request
from hirag_dist.errors import RequestRejected
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import Message

TEXT = (
    "Ebenezer Scrooge kept a counting-house in London. Bob Cratchit, his clerk, lived in Camden Town with Tiny Tim. "
    "The Ghost of Jacob Marley came on Christmas Eve. Scrooge met the Ghost; Cratchit met Tiny Tim. 孙悟空大闹天宫。"
)


def everything() -> str:
    """Return a digest of one reply to each task."""
    prompts = Prompts()
    members = [(name, "person", TEXT) for name in ("Ebenezer Scrooge", "Bob Cratchit", "Tiny Tim", "Jacob Marley")]
    lines = [f"E{number}. {name} (person): {text}" for number, (name, _, text) in enumerate(members, start=1)]
    requests = [
        extraction_request("extract-graph", TEXT * 5, prompts, ["person", "location"], None),
        summary_request(members, prompts, ["person"], "summarise"),
        report_request(lines, [], [], prompts, "report"),
        answer_request("Where did Bob Cratchit live?", f"[S1] Carol\n{TEXT}", prompts),
    ]
    replies = "\n".join(reply_to(request.messages, request.form) for request in requests)
    return hashlib.sha256(replies.encode()).hexdigest()


@pytest.mark.integration
def test_the_same_in_every_process() -> None:
    program = f"import runpy; print(runpy.run_path({__file__!r})['everything']())"
    digests = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert digests == {everything()}


@pytest.mark.parametrize("task", ["judge", "claims", "questions"])
def test_refuses_what_needs_a_language_model(task: str) -> None:
    messages = [Message("system", f"Task: {task}\n\nDo it."), Message("user", "text")]
    with pytest.raises(RequestRejected, match="needs a language model; configure"):
        reply_to(messages, None)


def test_refuses_a_message_without_a_task() -> None:
    with pytest.raises(RequestRejected, match="Task"):
        reply_to([Message("user", "Hello!")], None)
