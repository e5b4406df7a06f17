"""`hirag-dist simulate-llm` as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import openai
import pytest

COMMAND = [sys.executable, "-m", "hirag_dist", "simulate-llm", "--listen", "127.0.0.1:0"]


@pytest.mark.integration
def test_its_options_reach_the_endpoint() -> None:
    options = ["--truncate-rate", "1", "--no-limit-headers", "--rpm", "100", "--dim", "8"]
    with subprocess.Popen(
        [*COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "300"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        found = re.search(r"http://\S+/v1", process.stderr.readline())
        assert found is not None
        with openai.OpenAI(api_key="any", base_url=found.group(0), max_retries=0) as client:
            task = "Task: answer\n\nAnswer."
            said = client.chat.completions.create(model="c", messages=[{"role": "system", "content": task}])
            vectors = client.embeddings.with_raw_response.create(model="e", input=["one"])
        assert said.choices[0].finish_reason == "length"
        assert len(vectors.parse().data[0].embedding) == 8
        assert not [name for name in vectors.headers if name.lower().startswith("x-ratelimit")]
        process.send_signal(signal.SIGTERM)
        stats: dict[str, Any] = json.loads(process.communicate(timeout=120)[0])
    assert (stats["total"]["calls"], stats["total"]["faults"]) == (2, {"truncate": 1})
