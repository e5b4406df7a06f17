"""Settings of a retriever as arguments of the calls of its source."""

from __future__ import annotations

from hirag_dist.client import CallOptions
from hirag_dist.integrations.source import RetrievalSource, RetrieverSettings
from hirag_dist.types import Query


def test_the_arguments_of_a_call_to_a_service() -> None:
    service = RetrievalSource("127.0.0.1:1", {})
    settings = RetrieverSettings(index="letters", token="secret", timeout_s=3)
    assert settings.arguments(service) == {
        "omit_context": True,
        "omit_source_text": False,
        "index": "letters",
        "token": "secret",
        "timeout_s": 3,
    }
    assert {"index", "token", "timeout_s"} <= CallOptions.__annotations__.keys()
    assert RetrieverSettings(levels=("local",)).arguments(service) == {"omit_context": True, "omit_source_text": True}
    assert "secret" not in repr(settings)


def test_every_field_of_a_query_is_a_setting() -> None:
    values = {"mode": "flat", "top_n": 1, "top_m": 2, "top_c": 3, "community_level": "leaf", "context_tokens": 4}
    values |= {"labels": ("a",), "filter": "year > 1", "as_of": "2020", "vector": (0.5,), "reach": frozenset({"b"})}
    assert RetrieverSettings().merged(values).query("q") == Query("q", **values)
    assert {"question", *values} == set(Query.__slots__)
