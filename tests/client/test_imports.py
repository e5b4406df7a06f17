"""A client is cheap to import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "ray",
    "pymilvus",
    "milvus_lite",
    "numba",
    "scipy",
    "sklearn",
    "pyarrow",
    "openai",
    "pydantic",
    "aiohttp",
    "typer",
}


@pytest.mark.integration
def test_a_client_brings_nothing_of_the_engine() -> None:
    code = "import hirag_dist.client, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = json.loads(done.stdout)
    assert HEAVY.isdisjoint(name.partition(".")[0] for name in modules)
    assert {"hirag_dist.service.server", "hirag_dist.service.servicer"}.isdisjoint(modules)
