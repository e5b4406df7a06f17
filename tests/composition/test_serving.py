"""From configuration to a service that listens."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.composition.serving import multi_process_config, server_options
from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError


def config(**sections: Any) -> Config:
    return Config.model_validate(sections)


@pytest.mark.parametrize(
    ("vectors", "backend"),
    [({}, "memory"), ({"uri": "http://milvus:19530"}, "milvus"), ({"backend": "memory"}, "memory")],
)
def test_vectors_of_several_processes(vectors: dict[str, str], backend: str) -> None:
    assert multi_process_config(config(vectors=vectors)).vectors.backend == backend


def test_milvus_lite_belongs_to_one_process() -> None:
    with pytest.raises(ConfigError, match=r"set service\.processes to 1, or vectors\.backend"):
        multi_process_config(config(vectors={"backend": "milvus-lite"}))


def test_how_many_retrievals_at_a_time_goes_by_what_they_wait_for() -> None:
    endpoint = {"kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m", "dim": 8}
    remote = {"endpoints": {"far": endpoint}, "roles": {"embed": "far"}}
    server = {"uri": "http://milvus:19530"}
    for vectors, n in (({"backend": "memory"}, 2), ({}, 2), (server, 8), (server | {"backend": "milvus"}, 8)):
        assert server_options(config(vectors=vectors)).max_concurrent_retrievals == n
    assert server_options(config(vectors={"backend": "memory"}, llm=remote)).max_concurrent_retrievals == 32


def test_every_key_of_the_service_is_an_option() -> None:
    given = {
        "listen": "127.0.0.1:1",
        "anonymous_labels": ["public"],
        "max_concurrent_answers": 3,
        "map_reduce": True,
        "max_context_tokens": 4000,
        "max_concurrent_requests": 7,
        "drain_s": 4.0,
        "drain_delay_s": 3.0,
        "reflection": False,
        "callers_file": "callers.yaml",
        "metrics_listen": "127.0.0.1:9464",
        "access_log": False,
        "log_questions": True,
    }
    traces = "http://collector:4318/v1/traces"
    options = server_options(config(service=given, traces_endpoint=traces))
    assert options.traces_endpoint == traces
    for key, value in given.items():
        expected = frozenset(value) if key == "anonymous_labels" else value  # type: ignore[arg-type]
        assert getattr(options, key) == expected, key
    shared = server_options(config(service=given), listen="127.0.0.1:2", shared=True)
    assert (shared.listen, shared.reuse_port) == ("127.0.0.1:2", True)
    assert server_options(config(service={"anonymous_labels": "all"})).anonymous_labels is None
    for wrong in ("some", [7]):
        with pytest.raises(ValueError, match="Expected a list of labels"):
            config(service={"anonymous_labels": wrong})
