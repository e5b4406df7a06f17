"""Settings of benchmarks: figures must not depend on whether the weights of a better embedder are installed."""

from __future__ import annotations

_KIND = "llm.endpoints.builtin-embedder.kind"

HASHING = {_KIND: "hashing"}
HASHING_OPTION = ("--set", f"{_KIND}=hashing")
