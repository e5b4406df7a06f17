"""The configuration as a whole, its sections, and what follows from single values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from hirag_dist.cli.config import template
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config, EndpointConfig
from hirag_dist.config.object_stores import store_uri
from hirag_dist.config.sections import ExtractionConfig
from hirag_dist.config.service import is_index_name, is_index_pattern, matches_any
from hirag_dist.errors import ConfigError
from hirag_dist.indexing.base import content_config, differences


def keys(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield (dotted key, description) of a section and of the sections below it."""
    for name, field in section.model_fields.items():
        kind = get_args(field.annotation)[1] if get_origin(field.annotation) is dict else field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.description


def test_there_are_at_most_130_keys_and_each_has_a_description() -> None:
    found = dict(keys(Config))
    assert len(found) <= 130
    assert [key for key, description in found.items() if not description] == []


def test_every_value_of_the_template_is_the_default() -> None:
    written = Config.model_validate(yaml.safe_load(template()))
    assert written.model_dump() == Config().model_dump()


def test_the_short_form_names_the_calls(tmp_path: Any) -> None:
    assert Config.model_validate({"extraction": "two_step"}).extraction == ExtractionConfig(calls="two_step")
    (tmp_path / "hirag.yaml").write_text("extraction: two_step\n")
    loaded = load_config(str(tmp_path / "hirag.yaml"), {"HIRAG__EXTRACTION__METHOD": "nlp"}).config
    assert (loaded.extraction.method, loaded.extraction.calls) == ("nlp", "two_step")
    with pytest.raises(ConfigError, match="extraction"):
        load_config(None, {"HIRAG__EXTRACTION": "three_step"})


def test_an_index_of_an_earlier_version_has_the_configuration_of_method_llm() -> None:
    """That version recorded `extraction: joint`."""
    for extraction in ("joint", {}, {"method": "llm"}):
        assert content_config(Config.model_validate({"extraction": extraction}))["extraction"] == "joint"


def test_summaries_that_see_less_of_their_members_are_another_index() -> None:
    """Former versions showed 480 characters, and recorded nothing of it."""
    former = content_config(Config())
    assert "member_chars" not in former["clustering"]
    now = content_config(Config.model_validate({"clustering": {"member_chars": 60}}))
    assert differences(former, now) == ["clustering.member_chars: not there → 60"]


def test_a_key_that_is_fixed_now_is_no_difference() -> None:
    now: dict[str, Any] = {"kernels": "cpu", "config": content_config(Config())}
    config = now["config"]
    former = config | {"homonyms": "merge", "pack_units": 8, "clustering": config["clustering"] | {"max_size": 40}}
    assert differences(now | {"config": former}, now) == []
    former["clustering"]["max_size"] = 60
    assert differences(now | {"config": former}, now) == ["config.clustering.max_size: 60 → not there"]
    assert differences(now | {"config": now["config"] | {"homonyms": "split"}}, now) == [
        "config.homonyms: split → not there"
    ]


def test_a_mode_that_reads_the_whole_corpus_is_no_default_and_says_where_it_is_chosen() -> None:
    with pytest.raises(ConfigError, match=r"retrieval\.mode: .* part of the corpus, .* `query --mode graphrag-global`"):
        load_config(None, {"HIRAG__RETRIEVAL__MODE": "graphrag-global"})


@pytest.mark.parametrize(
    ("price", "prices"),
    [
        ({}, None),
        ({"cached": 1}, None),
        ({"input": 0}, (0, 0, 0)),
        ({"input": 2, "output": 8}, (2, 2, 8)),
        ({"input": 2, "cached": 0.5, "output": 8}, (2, 0.5, 8)),
        ({"output": 8}, (0, 0, 8)),
    ],
)
def test_a_price_is_known_where_input_or_output_is_given(price: dict[str, float], prices: Any) -> None:
    endpoint = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "price": price}
    assert EndpointConfig.model_validate(endpoint).prices == prices


def test_a_built_in_model_is_free() -> None:
    assert EndpointConfig(kind="extractive").prices == (0, 0, 0)
    rehearsal = EndpointConfig.model_validate({"kind": "extractive", "price": {"input": 1, "output": 2}})
    assert rehearsal.prices == (1, 1, 2)


NO_NAMES = ["", ".", "..", "a/b", "../acme", "/acme", "-a", ".hidden", "a b", "ä", "a" * 64, "a\n"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_are_none(name: str) -> None:
    assert not is_index_name(name)


def test_patterns() -> None:
    assert is_index_name("a" * 63)
    assert is_index_name("Acme_2.0-x")
    assert is_index_pattern("*")
    assert is_index_pattern("*-acme-*")
    assert not is_index_pattern("../*")
    assert matches_any("acme", ["*"])
    assert matches_any("a.c", ["a.c"])
    assert not matches_any("abc", ["a.c"])
    assert not matches_any("acme-1", ["acme"])
    assert not matches_any("acme", [])


MINIO = {"AWS_ENDPOINT_URL": "http://minio:9000"}
ADDED = "endpoint_override=minio%3A9000&scheme=http&region="


@pytest.mark.parametrize(
    ("uri", "environ", "expected"),
    [
        ("s3://b/i", {}, "s3://b/i"),
        ("s3://b/i", MINIO, f"s3://b/i?{ADDED}us-east-1"),
        ("s3://b/i", MINIO | {"AWS_DEFAULT_REGION": "eu-1"}, f"s3://b/i?{ADDED}eu-1"),
        ("s3://b/i?region=x", MINIO, "s3://b/i?region=x&endpoint_override=minio%3A9000&scheme=http"),
        ("s3://b/i?endpoint_override=a:1", MINIO, "s3://b/i?endpoint_override=a:1"),
        (
            "s3://b/i",
            MINIO | {"AWS_ENDPOINT_URL_S3": "https://abc.r2.cloudflarestorage.com", "AWS_REGION": "auto"},
            "s3://b/i?endpoint_override=abc.r2.cloudflarestorage.com&scheme=https&region=auto",
        ),
        ("gs://b/i", MINIO, "gs://b/i"),
        ("/data/i", MINIO, "/data/i"),
    ],
)
def test_variables_complete_the_uri(uri: str, environ: dict[str, str], expected: str) -> None:
    assert store_uri(uri, environ) == expected


def test_an_endpoint_that_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="Invalid AWS_ENDPOINT_URL: expected http://HOST:PORT"):
        store_uri("s3://b/i", {"AWS_ENDPOINT_URL": "minio:9000"})
