"""Configuration that packages read from files: hirag-dist's and GraphRAG's. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.job import CHAT_MODEL, EMBEDDING_MODEL

HIRAG_DIST = """\
llm:
  endpoints:
    chat: {{base_url: "{url}", model: simulated}}
    vectors: {{base_url: "{url}", model: simulated-embedding, dim: {dim}}}
  roles: {{extract: chat, summarise: chat, report: chat, answer: chat, judge: chat, embed: vectors}}
"""


def hirag_dist_settings(base_url: str, dim: int) -> str:
    """Return `hirag.yaml`: endpoints and roles, and defaults for all else."""
    return HIRAG_DIST.format(url=base_url, dim=dim)


def graphrag_settings(folder: Path, base_url: str, api_key: str, dim: int) -> dict[str, Any]:
    """Return GraphRAG's settings as its `init` writes them, with this endpoint and this size of vectors."""
    at = {
        "model_provider": "openai",
        "auth_method": "api_key",
        "api_key": api_key,
        "api_base": base_url,
        "retry": {"type": "exponential_backoff"},
    }
    return {
        "completion_models": {"default_completion_model": {"model": CHAT_MODEL, **at}},
        "embedding_models": {"default_embedding_model": {"model": EMBEDDING_MODEL, **at}},
        "input": {"type": "text"},
        "input_storage": {"type": "file", "base_dir": str(folder / "input")},
        "output_storage": {"type": "file", "base_dir": str(folder / "output")},
        "update_output_storage": {"type": "file", "base_dir": str(folder / "update_output")},
        "reporting": {"type": "file", "base_dir": str(folder / "logs")},
        "cache": {"type": "json", "storage": {"type": "file", "base_dir": str(folder / "cache")}},
        "vector_store": {"type": "lancedb", "db_uri": str(folder / "output" / "lancedb"), "vector_size": dim},
    }
